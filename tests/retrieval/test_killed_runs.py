"""Encoding and index building, killed with SIGKILL at ten random moments: the next run makes the same files."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from small_study import Study

from parallelsearch.files import sha256

KILLS = 10
SCRIPT = Path(__file__).with_name("killed_run.py")
PRODUCTS = {"embed": ["shard-0-of-1.json", "shard-0-of-1.npy"], "index": ["index.faiss", "manifest.json"]}


@pytest.mark.slow
@pytest.mark.parametrize("step", PRODUCTS)
def test_what_a_killed_run_leaves_becomes_what_an_undisturbed_one_makes(
    study: Study, short: Study, tmp_path: Path, step: str
) -> None:
    root = (short if step == "embed" else study).root
    chosen = random.Random(step)
    moments = [chosen.uniform(0.05, 1.0) for _ in range(KILLS)]
    command = [sys.executable, str(SCRIPT), step, str(root), str(tmp_path), json.dumps(moments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    left = json.loads(done.stdout)
    assert len(left) == KILLS
    # The file that makes a product whole is written last: no killed run that left it lacked another.
    whole = PRODUCTS[step]
    last = "shard-0-of-1.json" if step == "embed" else "manifest.json"
    assert all(set(whole) <= set(files) for files in left if last in files)
    for number in range(KILLS):
        folder, undisturbed = tmp_path / str(number), tmp_path / "undisturbed1"
        assert sorted(path.name for path in folder.iterdir()) == whole
        assert [sha256(folder / name) for name in whole] == [sha256(undisturbed / name) for name in whole]
