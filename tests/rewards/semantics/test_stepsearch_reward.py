"""StepSearch's reward by hand, and its cosine against scikit-learn."""

from __future__ import annotations

import dataclasses
from math import log

import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics.pairwise import cosine_similarity

from parallelsearch.agent.transcript import parse_transcript
from parallelsearch.config import RewardConfig
from parallelsearch.records import Episode, Hit, Passage, Question, Structure
from parallelsearch.rewards.compose import score
from parallelsearch.rewards.semantics.stepsearch import passage_text, tfidf_cosine

QUESTION = Question(
    "q", "musique", "train", "Which city?", ("Lima",), "2hop", Structure.SEQUENTIAL, 2, ("Oslo", "Bergen", "Oslo")
)
# Passages without a common word: cosines are 1 or 0.
OSLO, BERGEN, NOISE = (
    Passage(number, title, text)
    for number, (title, text) in enumerate(
        [("Oslo", "capital fjord"), ("Bergen", "rainy coast"), ("Noise", "unrelated words")]
    )
)
GOLD = (passage_text(OSLO), passage_text(BERGEN))


def episode(*searches: tuple[str, list[list[Passage]]], answer: str = "Lima", after: str = "") -> Episode:
    """An episode that searched these texts; each of their sub-queries with what it retrieved."""
    text = "".join(f"<think>t</think><search>{said}</search>\n<information>x</information>\n" for said, _ in searches)
    made = parse_transcript(QUESTION, f"{text}<think>t</think><answer>{answer}</answer>{after}")
    turns = [
        dataclasses.replace(
            turn,
            sub_queries=tuple(
                dataclasses.replace(query, hits=tuple(Hit(passage, 1.0) for passage in found))
                for query, found in zip(turn.sub_queries, retrieved, strict=True)
            ),
        )
        for turn, (_, retrieved) in zip(made.turns, searches, strict=False)
    ]
    return dataclasses.replace(made, turns=(*turns, *made.turns[len(turns) :]))


def reward(made: Episode, gold=GOLD, **switches):
    return score(made, QUESTION, RewardConfig(semantics="stepsearch", stepsearch=switches), gold=gold)


# Search 1 finds the first gold paragraph: gain (1 + 0) / 2. Search 2 finds the second, and the first again: gain
# (0 + 1) / 2, penalty 1/2. Search 3 finds nothing new: penalty 1.
SEARCHES = (
    ("age of Oslo", [[OSLO]]),
    ("Bergen", [[OSLO, BERGEN]]),
    ("Bergen", [[BERGEN, OSLO]]),
)


def test_each_search_by_hand() -> None:
    made = reward(episode(*SEARCHES))
    assert made.by_turn == pytest.approx((0.5, 0.0, -1.0, 0.0))
    # Keys: 'age of Oslo' for 'Oslo' has F1 2 * (1/3) / (4/3) = 1/2, 'Bergen' is exact; each title counts once.
    assert made.as_dict() == pytest.approx(
        {"f1": 1.0, "key": 0.618 * 0.75, "format": 0.0, "steps": -0.5, "total": 1.0 + 0.618 * 0.75 - 0.5}
    )


@pytest.mark.parametrize(
    ("switches", "by_turn", "key"),
    [
        ({"gamma_key": 0.0}, (0.5, 0.0, -1.0, 0.0), 0.0),
        ({"redundancy_penalty": False}, (0.5, 0.5, 0.0, 0.0), 0.618 * 0.75),
        ({"information_gain": False}, (0.0, -0.5, -1.0, 0.0), 0.618 * 0.75),
        ({"information_gain": False, "redundancy_penalty": False}, (0.0, 0.0, 0.0, 0.0), 0.618 * 0.75),
    ],
)
def test_the_switches_of_the_ablation(switches: dict, by_turn: tuple, key: float) -> None:
    made = reward(episode(*SEARCHES), **switches)
    assert made.by_turn == pytest.approx(by_turn)
    assert made.terms["key"] == pytest.approx(key)
    assert made.total == pytest.approx(1 + key + sum(by_turn))


def test_sub_queries_of_one_search_are_rewarded_together() -> None:
    parallel = reward(episode(("Oslo ## Bergen", [[OSLO], [BERGEN]])))
    assert parallel.by_turn == pytest.approx((1.0, 0.0))
    assert parallel.terms["key"] == pytest.approx(0.618)
    twice = reward(episode(("Oslo ## Oslo", [[OSLO], [OSLO]])))  # the second found what the first had found
    assert twice.by_turn == pytest.approx((0.5 - 0.5, 0.0))


def test_a_partial_match_is_gained_once() -> None:
    half = Passage(7, "Oslo", "capital")  # 2 of 3 words: idf 1 for shared ones, ln(3/2) + 1 for the other
    cosine = 2 / (2**0.5 * (2 + (log(1.5) + 1) ** 2) ** 0.5)
    made = reward(episode(("a", [[half]]), ("b", [[OSLO]]), ("c", [[NOISE]])))
    assert made.by_turn == pytest.approx((cosine / 2, (1 - cosine) / 2, 0.0, 0.0))


def test_a_text_that_goes_on_after_its_answer_is_unfinished() -> None:
    for made in (episode(*SEARCHES[:1], after=" Bye."), episode(*SEARCHES[:1], answer="Lima</answer><answer>Rome")):
        assert reward(made).as_dict() == pytest.approx(
            {"f1": 0.0, "key": 0.0, "format": -1.0, "steps": 0.5, "total": -0.5}
        )
    assert reward(episode(after=" \n")).terms["format"] == 0.0
    assert reward(parse_transcript(QUESTION, "<think>t</think>")).total == -1.0


def test_nothing_to_compare_with_and_nothing_retrieved() -> None:
    made = reward(episode(("a", [[OSLO]]), ("b", [[]])), gold=())
    assert made.by_turn == (0.0, 0.0, 0.0)
    assert reward(episode(("a", [[]]))).by_turn == (0.0, 0.0)


def test_the_cosine_is_scikit_learns(passages) -> None:
    texts = [passage_text(passage) for passage in passages]
    for first in texts:
        for second in texts:
            vectors = TfidfVectorizer(stop_words="english").fit_transform([first, second])
            assert tfidf_cosine(first, second) == pytest.approx(cosine_similarity(vectors)[0, 1])
    assert tfidf_cosine("the of and", "the of") == 0.0  # stop words alone
    assert 0 < tfidf_cosine(texts[0], texts[2]) < 0.5  # two capitals
