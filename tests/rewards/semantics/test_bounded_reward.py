"""The bounded semantics: by hand, and as properties of any episode whatever."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parallelsearch.agent.transcript import parse_transcript
from parallelsearch.config import RewardConfig
from parallelsearch.records import Action, Episode, Question, StopReason, Structure, SubQuery, Turn
from parallelsearch.rewards.compose import score

T = "<think>t</think>"
BOUNDED = RewardConfig(semantics="bounded")


def question(structure: Structure, hops: int | None = None) -> Question:
    return Question("q", "hotpotqa", "dev", "Which city?", ("Lima",), "", structure, hops)


def episode(asked: Question, searches: list[str], answer: str | None = "Lima", think: str = T) -> Episode:
    text = "".join(f"{think}<search>{s}</search>\n<information>x</information>\n" for s in searches)
    return parse_transcript(asked, text + think + (f"<answer>{answer}</answer>" if answer is not None else ""))


def total(structure: Structure, searches: list[str], answer: str = "Lima", hops: int | None = None) -> float:
    made = episode(question(structure, hops), searches, answer)
    return score(made, made.question, BOUNDED).total


@pytest.mark.parametrize(
    ("structure", "hops", "by_searches"),
    [
        (Structure.PARALLEL, None, [-1, 0, -1, -2, -2, -2]),
        (Structure.SINGLE, None, [-1, 0, -1, -2, -2, -2]),
        (Structure.SEQUENTIAL, None, [-2, -1, 0, -1, -2, -2]),
        (Structure.SEQUENTIAL, 2, [-2, -1, 0, -1, -2, -2]),
        (Structure.SEQUENTIAL, 4, [-2, -1, 0, 0, 0, -1]),
        (Structure.MIXED, 4, [-2, -1, 0, 0, 0, -1]),
        (Structure.SEQUENTIAL, 1, [-2, -1, 0, -1, -2, -2]),
        (Structure.PARALLEL, 2, [-1, 0, -1, -2, -2, -2]),
    ],
)
def test_the_search_count_term(structure, hops, by_searches):
    for n, times in enumerate(by_searches):
        made = episode(question(structure, hops), ["a"] * n)
        assert score(made, made.question, BOUNDED).terms["search_count"] == pytest.approx(0.35 * times)


@pytest.mark.parametrize(
    "trick", ["a ##", "## a", "a ## a", "a ## A", "a ##  a", "a b ## a  b ## A B", "##", " ## ## "]
)
def test_tricks_are_no_decomposition(trick):
    made = episode(question(Structure.PARALLEL), [trick], "Rome")
    assert score(made, made.question, BOUNDED).terms["decomposition"] == 0.0
    # Where decomposing is wrong, they are not taken for it either.
    made = episode(question(Structure.SINGLE), [trick])
    assert score(made, made.question, BOUNDED).terms["decomposition"] == pytest.approx(0.15)


def test_the_published_accidents_by_hand():
    assert total(Structure.PARALLEL, ["a ## b"]) == pytest.approx(1.45)
    assert total(Structure.PARALLEL, ["a", "b"]) == pytest.approx(0.65)
    assert total(Structure.PARALLEL, ["a", "b ## c"]) == pytest.approx(1.1)
    assert total(Structure.PARALLEL, ["a ##"], "Rome") == pytest.approx(0.1)
    assert total(Structure.PARALLEL, ["a"] * 8) == pytest.approx(0.3)  # -1.1 in the published code
    assert total(Structure.SEQUENTIAL, ["a"] * 8) == pytest.approx(0.45)  # 1.5 there, the same as with two
    assert total(Structure.SEQUENTIAL, ["a"] * 2) == pytest.approx(1.15)


SUB_QUERIES = st.lists(st.sampled_from(["a", "A", " a", "b", "c d", "c  d", ""]), max_size=5)
TURNS = st.lists(
    st.builds(
        lambda action, texts, answer: Turn(
            text="x",
            action=action,
            sub_queries=tuple(SubQuery(text) for text in texts) if action is Action.SEARCH else (),
            answer=answer if action is Action.ANSWER else None,
        ),
        st.sampled_from(list(Action)),
        SUB_QUERIES,
        st.sampled_from(["Lima", "Rome", ""]),
    ),
    max_size=12,
)
EPISODES = st.builds(
    lambda structure, hops, turns, answer, good: Episode(
        question(structure, hops), tuple(turns), answer, StopReason.ANSWERED, good
    ),
    st.sampled_from(list(Structure)),
    st.one_of(st.none(), st.integers(0, 6)),
    TURNS,
    st.sampled_from(["Lima", "Rome", "", None]),
    st.booleans(),
)
WEIGHTS = st.builds(
    lambda d, s, f, alpha: RewardConfig(semantics="bounded", lambda_d=d, lambda_s=s, lambda_f=f, alpha=alpha),
    st.floats(0, 2), st.floats(0, 2), st.floats(0, 2), st.floats(0, 5),
)  # fmt: skip


@settings(deadline=None)  # a loaded machine is no fault
@given(EPISODES, WEIGHTS)
def test_every_term_is_bounded_and_they_add_up(made, weights):
    breakdown = score(made, made.question, weights)
    terms = breakdown.terms
    assert terms["outcome"] in (0.0, 1.0)
    assert 0 <= terms["decomposition"] <= weights.lambda_d * max(1, weights.alpha)
    assert -2 * weights.lambda_s <= terms["search_count"] <= 0
    assert abs(terms["format"]) <= min(weights.lambda_f, 0.5)
    assert breakdown.total == pytest.approx(
        terms["outcome"] + terms["decomposition"] + terms["search_count"] + terms["format"]
    )
    assert -2 * weights.lambda_s - 1e-9 <= breakdown.total
    assert breakdown.total <= 1 + weights.lambda_d * max(1, weights.alpha) + 1e-9


@settings(deadline=None)  # a loaded machine is no fault
@given(EPISODES, WEIGHTS)
def test_a_right_answer_is_worth_more_than_a_wrong_one_after_the_same_search(made, weights):
    right = dataclasses.replace(made, answer="Lima")
    wrong = dataclasses.replace(made, answer="Rome")
    assert score(right, made.question, weights).total > score(wrong, made.question, weights).total - 1e-9
    if weights.lambda_f < 0.99:
        assert score(right, made.question, weights).total > score(wrong, made.question, weights).total


@settings(deadline=None)  # a loaded machine is no fault
@given(EPISODES, st.integers(1, 6), WEIGHTS)
def test_more_searches_than_needed_never_pay(made, extra, weights):
    """Once there are as many searches as any question of this kind needs, further ones cannot raise the reward."""
    searched = Turn("x", Action.SEARCH, (SubQuery("a"),))
    enough = dataclasses.replace(made, turns=made.turns + (searched,) * 6)
    more = dataclasses.replace(made, turns=enough.turns + (searched,) * extra)
    assert score(more, made.question, weights).total <= score(enough, made.question, weights).total + 1e-9


@settings(deadline=None)  # a loaded machine is no fault
@given(EPISODES, WEIGHTS)
def test_empty_and_repeated_sub_queries_change_nothing(made, weights):
    padded = dataclasses.replace(
        made,
        turns=tuple(
            dataclasses.replace(turn, sub_queries=turn.sub_queries * 2 + (SubQuery(""), SubQuery("  ")))
            for turn in made.turns
        ),
    )
    assert score(padded, made.question, weights) == score(made, made.question, weights)


@settings(deadline=None)  # a loaded machine is no fault
@given(EPISODES)
def test_scoring_is_pure(made):
    for semantics in ("paper", "released", "bounded"):
        weights = RewardConfig(semantics=semantics)
        assert score(made, made.question, weights) == score(made, made.question, weights)
