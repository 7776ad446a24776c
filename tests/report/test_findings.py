"""What the study found, in sentences whose numbers are worked out by hand, and which claim nothing that is unsure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from by_hand_budgets import SETTINGS, write_arm

from parallelsearch.cli import main
from parallelsearch.report.findings import findings
from parallelsearch.report.study import read_study


def sentences(files: list[Path], settings: dict = SETTINGS) -> list[str]:
    return findings(read_study(files, json.dumps(settings)))


def both(root: Path, folder: str, ours: dict, theirs: dict, seeds: int = 1) -> list[Path]:
    arms = {"parallelsearch": ours, "search-r1": theirs}
    return [write_arm(root, folder, arm, seed, made) for arm, made in arms.items() for seed in range(seeds)]


def test_an_arm_that_needs_fewer_calls_and_answers_more_within_the_limits_alone(tmp_path: Path) -> None:
    """40 questions of two parts and 20 of three; ours: 2 calls, all right; theirs: parts + 1 calls, cut at three."""
    ours = {(2, 40): (2, True), (3, 20): (2, True)}
    theirs = {(2, 40): (3, True), (3, 20): (3, False)}
    free = {(2, 40): (3, True), (3, 20): (4, True)}
    files = both(tmp_path, "geoworld.test", ours, theirs) + both(tmp_path, "geoworld.test.unlimited", ours, free)
    assert sentences(files) == [
        "On parallel questions parallelsearch makes fewer LLM calls than search-r1: 2.00 against 3.00 a question, a"
        " ratio of 0.67 [0.67, 0.67] and a difference of -1.00 [-1.00, -1.00] (60 questions).",
        "Under the study's own limits, on parallel questions of three and more parts parallelsearch gives more right"
        " answers than search-r1: EM 1.000 against 0.000, a difference of 1.000 [1.000, 1.000] (20 questions).",
        "Without these limits, on parallel questions of three and more parts no difference in right answers was found"
        " between parallelsearch and search-r1: EM 1.000 against 1.000, a difference of 0.000 [0.000, 0.000] (20"
        " questions).",
    ]


def test_a_difference_whose_interval_contains_zero_is_not_claimed(tmp_path: Path) -> None:
    """One question of forty more is right with ours, and one more with theirs costs a call: nothing is sure."""
    ours = {(2, 39): (3, True), (2, 1): (2, True)}
    theirs = {(2, 39): (3, True), (2, 1): (3, False)}
    calls, accuracy, unlimited = sentences(both(tmp_path, "geoworld.test", ours, theirs, seeds=2))
    assert "no difference in LLM calls was found" in calls and "(40 questions and 2 seeds)" in calls
    assert calls.startswith("On parallel questions no difference") and "a ratio of 0.99 [" in calls
    assert "on parallel questions no difference in right answers was found" in accuracy
    assert unlimited == "Accuracy without the limits was not measured (evaluation.budgets asks for it)."


def test_a_worse_arm_is_called_worse(tmp_path: Path) -> None:
    calls, accuracy, _ = sentences(both(tmp_path, "geoworld.test", {(2, 30): (4, False)}, {(2, 30): (2, True)}))
    assert "parallelsearch makes more LLM calls than search-r1: 4.00 against 2.00" in calls
    assert "parallelsearch gives fewer right answers than search-r1: EM 0.000 against 1.000" in accuracy


def test_without_a_trained_arm_beside_the_baseline_nothing_is_found(tmp_path: Path) -> None:
    file = write_arm(tmp_path, "geoworld.test", "search-r1", 0, {(2, 3): (2, True)})
    assert sentences([file]) == ["No trained arm is compared with the baseline search-r1, so nothing was found."]


def test_the_arm_that_the_study_names_is_compared(tmp_path: Path) -> None:
    made = {(2, 3): (2, True)}
    files = [write_arm(tmp_path, "geoworld.test", arm, 0, made) for arm in ("search-r1", "otc")]
    assert "between otc and search-r1" in sentences(files, SETTINGS | {"treatment": "otc"})[0]


def test_the_command_prints_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = both(tmp_path, "geoworld.test", {(2, 3): (2, True)}, {(2, 3): (3, True)})
    main_arguments = ["findings", *map(str, files), "--settings", json.dumps(SETTINGS)]
    with pytest.raises(SystemExit) as ended:
        main(main_arguments)
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"- {sentence}" for sentence in sentences(files)] and len(lines) == 3
