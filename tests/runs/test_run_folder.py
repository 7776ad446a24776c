"""The folder of a run: what is resumed, what is set aside, what is refused."""

from __future__ import annotations

import hashlib
import json

import pytest
import yaml

from parallelsearch.errors import DataError
from parallelsearch.runs.run_folder import MetricsLog, finish_run, policy_folder, read_metrics, start_run
from parallelsearch.training.commands import _inputs


def test_a_run_with_the_same_settings_goes_on(tmp_path) -> None:
    folder = tmp_path / "seed0"
    start_run(folder, {"reward": {"lambda_d": 0.15}})
    (folder / "half.txt").write_text("kept")
    start_run(folder, {"reward": {"lambda_d": 0.15}})
    assert (folder / "half.txt").read_text() == "kept"


def test_a_run_with_other_settings_is_set_aside_and_nothing_is_lost(tmp_path) -> None:
    folder = tmp_path / "seed0"
    for value in (0.15, 0.35, 0.15, 0.35):
        start_run(folder, {"reward": {"lambda_d": value}})
        (folder / "value.txt").write_text(str(value))
    aside = sorted(path.name for path in tmp_path.glob("seed0.superseded-*"))
    assert len(aside) == 3
    assert sorted((tmp_path / name / "value.txt").read_text() for name in aside) == ["0.15", "0.15", "0.35"]
    assert yaml.safe_load((folder / "config.yaml").read_text()) == {"reward": {"lambda_d": 0.35}}


def test_what_differs_is_named_where_a_run_is_set_aside(tmp_path, capsys) -> None:
    before = {"training": {"steps": 6, "guard": {"window": 5}}, "sets": ["a"], "seed": 0, "old": 1}
    wanted = {"training": {"steps": 8, "guard": {"window": 3}}, "sets": ["a", "b"], "seed": 0, "new": {"x": 2}}
    start_run(tmp_path / "seed0", before)
    assert capsys.readouterr().out == ""
    start_run(tmp_path / "seed0", wanted)
    [aside] = tmp_path.glob("seed0.superseded-*")
    assert capsys.readouterr().out == (
        f"{tmp_path / 'seed0'} starts anew, what was there is now {aside}: training.steps was 6 and is 8,"
        " training.guard.window was 5 and is 3, sets was ['a'] and is ['a', 'b'], old was 1 and is None,"
        " new was None and is {'x': 2}\n"
    )


def test_metrics_after_the_checkpoint_are_dropped_on_resume(tmp_path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    for step in (1, 2, 3):
        log.append({"step": step})
    with path.open("a") as stream:
        stream.write('{"step": 4, "half')
    MetricsLog(path, keep_up_to=2)
    assert [row["step"] for row in read_metrics(path)] == [1, 2]


def test_a_broken_line_is_named(tmp_path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step"\n')
    with pytest.raises(DataError, match=r"metrics.jsonl, line 2 is not JSON"):
        read_metrics(path)


def test_only_a_complete_run_has_a_policy(tmp_path) -> None:
    with pytest.raises(DataError, match=r"done.json is missing"):
        policy_folder(tmp_path)
    finish_run(tmp_path, {"a": 1}, {"index": "abc"}, seed=0)
    with pytest.raises(DataError, match=r"which is missing; train the arm again"):
        policy_folder(tmp_path)
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "config.json").write_text("{}")
    assert policy_folder(tmp_path) == tmp_path / "policy"
    done = json.loads((tmp_path / "done.json").read_text())
    assert done["inputs"] == {"index": "abc"}
    assert {"verl", "torch", "transformers", "python"} <= set(done["versions"])


def test_a_run_goes_on_only_with_the_same_policy_index_and_questions(tmp_path) -> None:
    """Every shard of a policy counts, not only its first."""
    (tmp_path / "policy").mkdir()
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "manifest.json").write_text('{"sha256": "of the index"}')
    files = [tmp_path / "policy" / f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    files.append(tmp_path / "nq.train.parquet")
    for path in files:
        path.write_text(path.name)

    def inputs() -> dict[str, str]:
        return _inputs(str(tmp_path / "policy"), tmp_path / "index", [files[2]])

    before = inputs()
    hashes = [hashlib.sha256(path.name.encode()).hexdigest() for path in files]
    expected = {"policy": "+".join(hashes[:2]), "index": "of the index", "questions/nq.train.parquet": hashes[2]}
    assert before == expected
    start_run(tmp_path / "seed0", {"seed": 0, "inputs": before})
    for path in files:
        path.write_text("changed")
        start_run(tmp_path / "seed0", {"seed": 0, "inputs": inputs()})
    assert len(list(tmp_path.glob("seed0.superseded-*"))) == 3
    assert _inputs("some/model", tmp_path / "index", [])["policy"] == "some/model"  # of a hub that is not at hand
