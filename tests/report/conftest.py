"""One small study for all tests of the report."""

from __future__ import annotations

from pathlib import Path

import pytest
import real_study


@pytest.fixture(scope="session")
def study_files(tmp_path_factory: pytest.TempPathFactory, shared_data: Path) -> real_study.RealStudy:
    return real_study.build(tmp_path_factory.mktemp("study"), shared_data)
