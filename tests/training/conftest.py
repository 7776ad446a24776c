"""Checkpoints written by veRL's own manager, made once for all tests of training."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from parallelsearch.config import PolicyConfig
from parallelsearch.training.policy import build_policy, save_policy, train_tokenizer

KILLS = 8


@pytest.fixture(scope="session")
def written_by_verl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """See verl_checkpoints: whole/ of two ranks, kill0/ to kill7/ of one; policy/ is where they start. Read only."""
    out = tmp_path_factory.mktemp("checkpoints")
    tokenizer = train_tokenizer(["Which city is larger?"] * 3, 320)
    policy = build_policy(PolicyConfig(hidden_size=16, layers=1, heads=2), tokenizer, 0)
    save_policy(policy, tokenizer, out / "policy")
    environment = {
        **os.environ,
        "VERL_USE_EXTERNAL_MODULES": "parallelsearch.training.verl_cpu.plugin",
        "OMP_NUM_THREADS": "1",
    }
    script = Path(__file__).with_name("verl_checkpoints.py")
    command = [sys.executable, str(script), str(out / "policy"), str(out), str(KILLS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return out
