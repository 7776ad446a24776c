"""The command line's root: fast help, lazily loaded verbs, one sentence for a user's mistake."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from parallelsearch.cli import DEBUG, VERBS, load_verb

ROOT = Path(__file__).resolve().parents[1]
ABSENT = ["questions", "import", "hotpotqa", "no-such-file.json", "out.parquet"]


def run(*arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "parallelsearch.cli", *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_help_lists_every_verb_without_loading_a_heavy_library() -> None:
    script = (
        "import sys\nfrom parallelsearch.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'torch', 'faiss', 'transformers', 'mlflow', 'pandas', 'pyarrow'} & sys.modules.keys()))"
    )
    begun = time.process_time(), time.monotonic()
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert time.monotonic() - begun[1] < 10  # about 0.3 s on an idle machine
    assert said.rstrip().endswith("[]")
    for verb in VERBS:
        assert verb in said


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_loads_and_is_described(verb: str) -> None:
    command = load_verb(verb)
    assert command.name == verb
    assert command.help or VERBS[verb][1]


@pytest.mark.parametrize(
    "words",
    [
        "questions import",
        "corpus build",
        "encoder export",
        "index build",
        "retriever serve",
        "geoworld build",
        "track init",
        "track collect",
        "config schema",
    ],
)
def test_the_sub_verbs_that_scripts_rely_on_exist(words: str) -> None:
    verb, sub_verb = words.split()
    assert sub_verb in load_verb(verb).commands


def test_a_users_mistake_is_one_sentence_and_exit_code_1(tmp_path: Path) -> None:
    done = run(*ABSENT, cwd=tmp_path, **{DEBUG: ""})
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("parallelsearch: ") and "no-such-file.json" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_traceback_is_shown_on_demand_and_the_sentence_stays_last(tmp_path: Path) -> None:
    for done in (run("--traceback", *ABSENT, cwd=tmp_path), run(*ABSENT, cwd=tmp_path, **{DEBUG: "1"})):
        assert done.returncode == 1
        assert "Traceback (most recent call last)" in done.stderr
        assert done.stderr.splitlines()[-1].startswith("parallelsearch: ")


def test_an_unknown_verb_is_a_wrong_command_line() -> None:
    done = run("trian")
    assert done.returncode == 2
    assert "trian" in done.stderr


def test_the_version_is_printed() -> None:
    assert run("--version").stdout == "parallelsearch 0.1.0\n"
