"""The reward beside the metrics: with the gold paragraphs of the corpus that was searched, or none at all."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from parallelsearch.agent.transcript import parse_transcript
from parallelsearch.config import RewardConfig
from parallelsearch.corpus.passages import Corpus, build_corpus
from parallelsearch.evaluation.scoring import score_all
from parallelsearch.records import Episode, Hit, Question, Structure, SubQuery


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    rows = [{"id": "0", "contents": '"Oslo"\ncapital fjord'}, {"id": "1", "contents": '"Lima"\ncity of kings'}]
    (tmp_path / "pages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    build_corpus("wiki18", tmp_path / "pages.jsonl", tmp_path / "corpus")
    return Corpus(tmp_path / "corpus")


def found(corpus: Corpus, passage: int, titles: tuple[str, ...]) -> Episode:
    """A right answer after one search that retrieved one passage."""
    asked = Question("q", "musique", "dev", "Who?", ("Ada",), "2hop", Structure.SEQUENTIAL, 2, titles)
    made = parse_transcript(asked, "<search>Oslo</search>\n<information>x</information>\n<answer>Ada</answer>")
    search = dataclasses.replace(made.turns[0], sub_queries=(SubQuery("Oslo", (Hit(corpus[passage], 1.0),)),))
    return dataclasses.replace(made, turns=(search, made.turns[1]))


def test_each_episode_is_compared_with_its_own_gold_paragraphs(corpus: Corpus) -> None:
    episodes = [found(corpus, 0, ("Oslo",)), found(corpus, 1, ("Oslo",)), found(corpus, 0, ())]
    scored = score_all(episodes, RewardConfig(semantics="stepsearch"), corpus)
    assert [episode for episode, _ in scored] == episodes
    # The page itself; another page without a common word; a question whose pages are not known.
    assert [reward.by_turn[0] for _, reward in scored if reward] == pytest.approx([1.0, 0.0, 0.0])
    assert [reward.terms["key"] for _, reward in scored if reward] == pytest.approx([0.618, 0.618, 0.0])


def test_a_rollout_alone_in_its_group_is_the_best_of_it(corpus: Corpus) -> None:
    group = RewardConfig(semantics="otc", otc={"group": True})
    [(_, reward)] = score_all([found(corpus, 0, ())], group, corpus)
    assert reward and reward.total == pytest.approx(1.0)


def test_without_weights_nothing_is_scored(corpus: Corpus) -> None:
    episode = found(corpus, 0, ())
    assert score_all([episode], None, corpus) == [(episode, None)]
