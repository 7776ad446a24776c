"""Checkpoints in veRL's own layout: what a kill leaves is never resumed from, what is kept, how much room they need."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from parallelsearch.errors import ResourceError
from parallelsearch.machine.preflight import Space
from parallelsearch.runs import checkpoints as module
from parallelsearch.runs.checkpoints import ACTOR_BYTES, CRITIC_BYTES, MARKER, Checkpoints, parameter_count


@pytest.fixture
def whole(written_by_verl: Path, tmp_path: Path) -> Checkpoints:
    """Steps 1 and 2 of a PPO job of two ranks, complete; a copy that may be broken."""
    shutil.copytree(written_by_verl / "whole", tmp_path / "checkpoints")
    return Checkpoints(tmp_path / "checkpoints", ranks=2, critic=True)


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_whole_checkpoints_are_complete_and_the_newest_counts(whole: Checkpoints) -> None:
    assert whole.complete == [1, 2]
    assert (whole.latest, whole.marked, whole.clean()) == (2, 2, 2)
    assert sorted(path.name for path in whole.folder.iterdir() if path.name.startswith("global")) == [
        "global_step_1",
        "global_step_2",
    ]


def test_no_folder_at_all_is_the_start_of_a_run(tmp_path: Path) -> None:
    nothing = Checkpoints(tmp_path / "checkpoints", ranks=1, critic=False)
    assert (nothing.complete, nothing.latest, nothing.marked, nothing.clean()) == ([], 0, 0, 0)


NEEDED = [
    *(f"{role}/{part}_world_size_2_rank_{rank}.pt"
      for role in ("actor", "critic") for part in ("model", "optim", "extra_state") for rank in (0, 1)),
    "actor/huggingface/model.safetensors",
    "data.pt",
]  # fmt: skip


@pytest.mark.parametrize("damage", ["missing", "empty", "half"])
@pytest.mark.parametrize("name", NEEDED)
def test_a_checkpoint_with_a_file_that_was_not_finished_is_removed_and_the_one_before_counts(
    whole: Checkpoints, name: str, damage: str
) -> None:
    path = whole.path(2) / name
    content = path.read_bytes()
    path.unlink() if damage == "missing" else path.write_bytes(content[: len(content) // 2 if damage == "half" else 0])
    assert whole.latest == 1
    assert whole.clean() == 1
    assert not whole.path(2).exists()
    assert (whole.folder / MARKER).read_text() == "1"  # from where veRL resumes


def test_every_file_that_holds_tensors_is_looked_at(whole: Checkpoints) -> None:
    """The critic keeps no copy in Hugging Face layout: only its configuration and tokenizer stand there."""
    tensors = [name for name in files_of(whole.path(1)) if name.endswith((".pt", ".safetensors"))]
    assert tensors == sorted(NEEDED)


@pytest.mark.parametrize("name", [name for name in NEEDED if name.endswith(".pt")])
def test_a_checkpoint_in_which_one_bit_has_changed_is_named_and_the_one_before_counts(
    whole: Checkpoints, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = whole.path(2) / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert whole.latest == 2  # its end is whole, and nothing else is looked at while a job runs
    assert whole.clean() == 1
    assert capsys.readouterr().out == f"{whole.path(2)} is not gone on from and removed: {path} is damaged\n"
    assert not whole.path(2).exists()
    assert (whole.folder / MARKER).read_text() == "1"


@pytest.mark.parametrize("text", ["", "2\x00", "two"])
def test_a_marker_that_was_not_finished_is_written_anew(whole: Checkpoints, text: str) -> None:
    (whole.folder / MARKER).write_text(text)
    assert whole.marked == 0
    assert whole.clean() == 2
    assert (whole.folder / MARKER).read_text() == "2"


def test_a_checkpoint_of_another_number_of_ranks_or_without_a_critic_is_not_complete(whole: Checkpoints) -> None:
    assert Checkpoints(whole.folder, ranks=1, critic=True).complete == []
    assert Checkpoints(whole.folder, ranks=2, critic=False).complete == [1, 2]  # a critic more does no harm
    shutil.rmtree(whole.path(1) / "critic")
    assert whole.complete == [2]
    assert Checkpoints(whole.folder, ranks=2, critic=False).complete == [1, 2]


@pytest.mark.parametrize("number", range(8))
def test_what_a_killed_job_leaves_can_be_resumed_from_or_is_gone(
    written_by_verl: Path, tmp_path: Path, number: int
) -> None:
    shutil.copytree(written_by_verl / f"kill{number}", tmp_path / "checkpoints")
    checkpoints = Checkpoints(tmp_path / "checkpoints", ranks=1, critic=True)
    marked = checkpoints.marked
    step = checkpoints.clean()
    assert step >= marked  # what veRL had marked is complete; the newest may be, just before its mark
    left = sorted(path.name for path in checkpoints.folder.glob("global_step_*"))
    assert left == sorted(f"global_step_{kept}" for kept in range(1, step + 1))
    assert checkpoints.marked == step
    for path in checkpoints.folder.rglob("*.pt"):
        assert torch.load(path, weights_only=False)


def test_at_least_one_kill_was_in_the_middle_of_a_checkpoint(written_by_verl: Path) -> None:
    halves = [
        folder
        for folder in written_by_verl.glob("kill*")
        if len(list(folder.glob("global_step_*"))) > Checkpoints(folder, ranks=1, critic=True).marked
    ]
    assert halves


def test_checkpoints_from_a_step_on_can_be_removed(whole: Checkpoints) -> None:
    assert whole.clean(before=2) == 1
    assert (whole.complete, whole.marked) == ([1], 1)
    assert whole.clean(before=1) == 0
    assert not (whole.folder / MARKER).exists()  # veRL starts from the beginning


def many(folder: Path, steps: range, marked: int) -> Checkpoints:
    for step in steps:
        (folder / f"global_step_{step}").mkdir(parents=True)
    (folder / MARKER).write_text(str(marked))
    return Checkpoints(folder, ranks=1, critic=False)


@pytest.mark.parametrize(
    ("good_before", "kept"),
    [(5, [3, 4, 5]), (99, [3, 4, 5]), (4, [3, 4, 5]), (3, [2, 4, 5]), (1, [3, 4, 5])],
)
def test_while_a_job_runs_the_newest_the_last_good_or_else_one_before_and_the_one_being_written_are_kept(
    tmp_path: Path, good_before: int, kept: list[int]
) -> None:
    checkpoints = many(tmp_path, range(1, 6), marked=4)  # 5 is being written
    checkpoints.prune(good_before)
    assert sorted(int(path.name[len("global_step_") :]) for path in tmp_path.glob("global_step_*")) == kept


def test_the_room_for_a_checkpoint_is_what_verl_writes(whole: Checkpoints, written_by_verl: Path) -> None:
    """Of a policy this small, formats and Python objects are a large part; a real one is close to the numbers alone."""
    tensors = 0
    for path in [*whole.path(1).rglob("model_*.pt"), *whole.path(1).rglob("optim_*.pt")]:
        stored = {tensor.data_ptr(): tensor for tensor in tensors_in(torch.load(path, weights_only=False))}  # tied once
        tensors += sum(tensor.numel() * tensor.element_size() for tensor in stored.values())
    policy = written_by_verl / "policy"
    exported = (whole.path(1) / "actor" / "huggingface" / "model.safetensors").stat().st_size
    parameters = parameter_count(policy)
    named = parameters * (ACTOR_BYTES + CRITIC_BYTES)
    assert 4 * parameters < exported < 4 * parameters + 4096
    assert named == pytest.approx(tensors + 4 * parameters, rel=0.02)  # the critic's head, the counters of Adam


def tensors_in(value: object) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value.to_local() if hasattr(value, "to_local") else value]
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [tensor for child in children for tensor in tensors_in(child)]


def test_a_disk_that_is_too_small_is_named_before_the_job(
    written_by_verl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = written_by_verl / "policy"
    checkpoints = Checkpoints(tmp_path / "checkpoints", ranks=1, critic=True)
    checkpoints.require_room(policy)
    need = parameter_count(policy) * (3 * 28 + 4)
    free = {"bytes": need}
    monkeypatch.setattr(module, "disk_available", lambda folder: Space(free["bytes"], f"the disk of {folder}"))
    checkpoints.require_room(policy)
    free["bytes"] = need - 1
    with pytest.raises(ResourceError, match=r"Training a policy of [\d,]+ parameters .* needs .* but the disk of .*"):
        checkpoints.require_room(policy)
    checkpoints.folder.mkdir()
    (checkpoints.folder / "there").write_bytes(b"x")  # what a run that goes on has written counts
    checkpoints.require_room(policy)
