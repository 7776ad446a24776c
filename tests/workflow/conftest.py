"""Checkouts of the workflow that tests may edit."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkout import Checkout


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout whose whole study is finished; a test undoes what it edits."""
    checkout = Checkout(tmp_path_factory.mktemp("finished"))
    checkout.finish("all")
    return checkout
