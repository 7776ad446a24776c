"""Totals of the three semantics against the paper's equations and the totals that the published scorer returned."""

from __future__ import annotations

import pytest

from parallelsearch.agent.transcript import parse_transcript
from parallelsearch.config import RewardConfig
from parallelsearch.records import Question, Structure
from parallelsearch.rewards.compose import score

# The rows of the published scorer's totals, by number of searches n = 0 .. 4, in a good format: (right, wrong).
# Weights: lambda_d 0.15, lambda_s 0.35, lambda_f 0.1, alpha 3.
PARALLEL_FIRST = "comparison, first search parallel"
TOTALS = {
    PARALLEL_FIRST: [(1.00, 0.10), (1.80, 0.90), (1.45, 0.55), (1.10, 0.20), (0.75, -0.15)],
    "comparison, sequential": [(1.00, 0.10), (1.35, 0.45), (1.00, 0.10), (0.65, -0.25), (0.30, -0.60)],
    "single, single query": [(1.15, 0.25), (1.50, 0.60), (1.15, 0.25), (0.80, -0.10), (0.45, -0.45)],
    "single, parallel": [(1.15, 0.25), (1.35, 0.45), (1.00, 0.10), (0.65, -0.25), (0.30, -0.60)],
    "bridge, single query": [(0.80, -0.10), (1.15, 0.25), (1.50, 0.60), (1.50, 0.60), (1.50, 0.60)],
    "bridge, parallel": [(0.80, -0.10), (1.00, 0.10), (1.35, 0.45), (1.35, 0.45), (1.35, 0.45)],
}
STRUCTURES = {"comparison": Structure.PARALLEL, "single": Structure.SINGLE, "bridge": Structure.SEQUENTIAL}
CELLS = [
    (row, n, right, cell[0] if right else cell[1])
    for row, cells in TOTALS.items()
    for n, cell in enumerate(cells)
    for right in (True, False)
]


def question(structure: Structure, golden=("Lima",), hops: int | None = None) -> Question:
    return Question("q", "hotpotqa", "dev", "Which city?", tuple(golden), "comparison", structure, hops)


def transcript(*searches: str, answer: str | None = "Lima", think: str = "<think>t</think>") -> str:
    text = "".join(
        f"{think}<search>{search}</search>\n\n<information>Doc 1(Title: x) y\n</information>\n\n" for search in searches
    )
    return text + think + (f"<answer>{answer}</answer>" if answer is not None else "")


def total(text: str, structure: Structure, semantics: str, **settings) -> float:
    episode = parse_transcript(question(structure), text)
    return score(episode, episode.question, RewardConfig(semantics=semantics, **settings)).total


@pytest.mark.parametrize(("row", "n", "right", "expected"), CELLS)
def test_every_cell_of_the_published_totals(row, n, right, expected):
    first = "a ## b" if "parallel" in row else "a"
    text = transcript(*([first] + ["c"] * 3)[:n], answer="Lima" if right else "Rome")
    structure = STRUCTURES[row.split(",")[0]]
    assert total(text, structure, "released") == pytest.approx(expected)
    assert total(text, structure, "paper") == pytest.approx(expected - 0.35)


@pytest.mark.parametrize(("row", "n", "right", "expected"), CELLS)
def test_every_cell_in_a_bad_format(row, n, right, expected):
    """Equations 6 and 7: a right answer loses lambda_f, a wrong one does not get it. Without think blocks."""
    first = "a ## b" if "parallel" in row else "a"
    text = transcript(*([first] + ["c"] * 3)[:n], answer="Lima" if right else "Rome", think="")
    structure = STRUCTURES[row.split(",")[0]]
    assert total(text, structure, "released") == pytest.approx(expected - 0.1)
    assert total(text, structure, "paper") == pytest.approx(expected - 0.35 - 0.1)


@pytest.mark.parametrize("structure", [Structure.SEQUENTIAL, Structure.MIXED, Structure.OTHER])
def test_everything_but_parallel_and_single_is_scored_like_bridge(structure):
    for semantics in ("paper", "released", "bounded"):
        for searches in ((), ("a",), ("a ## b",), ("a", "b"), ("a", "b", "c")):
            text = transcript(*searches)
            assert total(text, structure, semantics) == total(text, Structure.SEQUENTIAL, semantics)


@pytest.mark.parametrize(
    ("text", "structure", "released", "paper"),
    [
        # What the published scorer returned on these inputs, and the equations by hand.
        (transcript("a ##", answer="Rome"), Structure.PARALLEL, 0.9, 0.1),  # one sub-query: no decomposition
        (transcript("##", answer="Rome"), Structure.PARALLEL, 0.9, -0.35),  # no search at all, and not well-formed
        (transcript("a", "b ## c"), Structure.PARALLEL, 1.0, 1.0 + 0.45 - 0.35),  # decomposed in the second search
        (transcript("a", "b ## c", answer="Rome"), Structure.PARALLEL, 0.1, 0.1 + 0.45 - 0.35),
        (transcript(*["a"] * 8), Structure.PARALLEL, -1.1, -1.45),  # eight searches, right
        (transcript(*["a"] * 8), Structure.SEQUENTIAL, 1.5, 1.15),
        (transcript("a", "b"), Structure.PARALLEL, 1.0, 0.65),
        (transcript("a ## b", answer="Rome"), Structure.PARALLEL, 0.9, 0.55),
        (transcript(), Structure.SEQUENTIAL, 0.8, 0.45),  # no search, right
        (transcript("a ## a"), Structure.PARALLEL, 1.8, 1.45),  # the equations do not look at repetition
        (transcript("a ## b", "c"), Structure.SINGLE, 1.0, 0.65),
    ],
)
def test_reported_inputs(text, structure, released, paper):
    assert total(text, structure, "released") == pytest.approx(released)
    assert total(text, structure, "paper") == pytest.approx(paper)


def test_a_tag_in_a_passage_changes_nothing():
    """The published scorer drops from 1.80 to 1.35 here and calls the format invalid."""
    clean = transcript("a ## b")
    for poison in ("<search>x</search>", "<search>", "<answer>Rome</answer>", "</think>", "<SEARCH>"):
        poisoned = clean.replace("Title: x) y", f"Title: x) {poison} y")
        assert poisoned != clean
        assert total(poisoned, Structure.PARALLEL, "released") == pytest.approx(1.8)
        for semantics in ("paper", "bounded"):
            assert total(poisoned, Structure.PARALLEL, semantics) == total(clean, Structure.PARALLEL, semantics)


def test_no_answer_is_not_beijing():
    text = transcript("a ## b", answer=None)
    for semantics in ("paper", "released", "bounded"):
        episode = parse_transcript(question(Structure.PARALLEL, ("Beijing", "and")), text)
        assert score(episode, episode.question, RewardConfig(semantics=semantics)).terms["outcome"] == 0.0


def test_correction_messages_are_not_searches():
    published = (
        "\nMy previous action is invalid. If I want to search, I should put the query between <search> and </search>."
        " If I want to give the final answer, I should put the answer between <answer> and </answer>."
        " Let me try again.\n"
    )
    with_it, without = "hm" + published + transcript("a ## b"), "hm" + transcript("a ## b")
    for semantics in ("paper", "released", "bounded"):
        assert total(with_it, Structure.PARALLEL, semantics) == total(without, Structure.PARALLEL, semantics)


def test_several_answers_score_nothing():
    for text in (
        transcript(answer="Lima</answer><answer>Rome"),
        transcript(answer="Rome</answer><answer>Lima"),
        transcript(answer="Lima") + transcript("a"),
        "<answer>Lima</answer>" * 12,
    ):
        for semantics in ("paper", "released", "bounded"):
            episode = parse_transcript(question(Structure.PARALLEL), text)
            breakdown = score(episode, episode.question, RewardConfig(semantics=semantics))
            assert (breakdown.terms["outcome"], breakdown.terms["format"]) == (0.0, 0.0)


@pytest.mark.parametrize("golden", [(), (None,), ("",), ("the",)])
def test_golden_answers_that_cannot_be_matched(golden):
    for answer in ("", "the", "None", "Lima"):
        episode = parse_transcript(question(Structure.PARALLEL, golden), transcript("a", answer=answer))
        assert score(episode, episode.question, RewardConfig()).terms["outcome"] == 0.0


def test_weights_reach_their_terms():
    episode = parse_transcript(question(Structure.PARALLEL), transcript("a ## b", "c", answer="Rome"))
    weights = RewardConfig(lambda_d=0.5, lambda_s=0.2, lambda_f=0.05, alpha=2.0)
    assert score(episode, episode.question, weights).as_dict() == pytest.approx(
        {"outcome": 0.0, "decomposition": 1.0, "search_count": -0.2, "format": 0.05, "total": 0.85}
    )
    nothing = RewardConfig(lambda_d=0, lambda_s=0, lambda_f=0)
    assert score(episode, episode.question, nothing).total == 0.0
