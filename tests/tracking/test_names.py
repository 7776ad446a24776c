"""What MLflow accepts: every name and value that we give it, tried on MLflow's own validation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils.validation import MAX_ENTITY_KEY_LENGTH, MAX_PARAM_VAL_LENGTH, _validate_metric_name

from parallelsearch.errors import DataError
from parallelsearch.tracking.names import (
    NAME_LENGTH,
    VALUE_LENGTH,
    flattened,
    is_metric,
    sanitised,
    sanitised_names,
    shortened,
)


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("timing(s)/gen", "timing_s_/gen"),
        ("critic/score, mean", "critic/score_ mean"),
        ("decomposition_ratio/parallel", "decomposition_ratio/parallel"),
        ("val@8", "val_8"),
        ("verlängert", "verl_ngert"),
    ],
)
def test_refused_characters_become_underscores(name: str, clean: str) -> None:
    assert sanitised(name) == clean


@given(st.text(max_size=300))
def test_mlflow_accepts_every_sanitised_name(name: str) -> None:
    _validate_metric_name(sanitised(name))
    assert len(sanitised(name)) <= NAME_LENGTH <= MAX_ENTITY_KEY_LENGTH


def test_long_names_that_differ_at_the_end_stay_different() -> None:
    assert sanitised("x" * 300 + "a") != sanitised("x" * 300 + "b")


def test_names_that_would_become_one_are_refused_with_both_and_the_place() -> None:
    assert sanitised_names(["a(s)", "b"], "here") == {"a(s)": "a_s_", "b": "b"}
    with pytest.raises(DataError, match=r"metrics\.jsonl: 'time\(s\)' and 'time\[s\]' would both be called 'time_s_'"):
        sanitised_names(["time(s)", "em", "time[s]"], "metrics.jsonl")


def test_settings_are_flattened_without_loss() -> None:
    values = {"reward": {"lambda_d": 0.15, "semantics": "paper"}, "sets": ["a", "b"], "none": None, "empty": {}}
    assert flattened(values) == {
        "reward.lambda_d": "0.15",
        "reward.semantics": "paper",
        "sets": '["a", "b"]',
        "none": "null",
        "empty": "{}",
    }


def test_a_value_of_ten_kilobytes_is_shortened_and_says_so() -> None:
    text = "a" * 10_000
    short = shortened(text)
    assert len(short) == VALUE_LENGTH <= MAX_PARAM_VAL_LENGTH
    assert "(10000 characters, sha256 " in short
    assert shortened(text) != shortened(text[:-1] + "b")
    assert shortened("short") == "short"


def test_only_finite_numbers_are_metrics() -> None:
    values = [1, 0.5, True, float("nan"), float("inf"), "1", None]
    assert [is_metric(value) for value in values] == [True, True, False, False, False, False, False]
