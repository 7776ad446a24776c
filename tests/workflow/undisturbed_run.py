"""A run of four steps, and whether another one is equal to it."""

from __future__ import annotations

from typing import Any

import pytest
from safetensors.torch import load_file
from torch.testing import assert_close
from training_job import TrainingJob

SIZES = {"training": {"steps": 4, "batch_size": 8, "mini_batch_size": 4, "micro_batch_size": 4, "save_every": 2}}
EVERY_STEP = {"training": {"save_every": 1}}
# Figures of the clock and of this machine.
UNEQUAL = ("timing_s/", "perf/", "seconds", "actor/perf/", "critic/perf/")
# Read off the log-probabilities of the sampled tokens, whose last bits depend on what is decoded beside them.
OF_VERL = ("actor/", "critic/", "training/", "response_length/")
ROUNDED = ("entropy", "actor/")


def assert_same_run(job: TrainingJob, undisturbed: TrainingJob, unlogged: int | None = None) -> None:
    """Every episode and every figure of all steps, and the weights that are left.

    veRL's own figures are compared where the row has them of step `unlogged`, which veRL may not have lived to log.
    """
    assert job.done()["steps"] == undisturbed.done()["steps"] == 4
    assert job.steps() == [1, 2, 3, 4]
    for row, expected in zip(job.rows(), undisturbed.rows(), strict=True):
        keys = [key for key in expected if not key.startswith(UNEQUAL)]
        if row["step"] == unlogged:
            keys = [key for key in keys if key in row or not key.startswith(OF_VERL)]
        assert set(keys) <= set(row)
        for key in keys:
            close = pytest.approx(expected[key], abs=1e-5) if key.startswith(ROUNDED) else expected[key]
            assert row[key] == close, (row["step"], key)
    assert episodes(job) == episodes(undisturbed)
    weights, wanted = (load_file(run.folder / "policy" / "model.safetensors") for run in (job, undisturbed))
    assert_close(weights, wanted, rtol=0, atol=1e-5)  # the least step of Adam is 1e-4


def episodes(job: TrainingJob) -> list[tuple[Any, ...]]:
    keys = ("step", "qid", "reward", "em", "llm_calls", "searches", "response_tokens", "stop_reason")
    return sorted(tuple(str(record[key]) for key in keys) for record in job.records())
