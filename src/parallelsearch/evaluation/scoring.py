"""The arm's reward of every evaluated episode, beside the metrics: the one it was trained with."""

from __future__ import annotations

from collections.abc import Sequence

from parallelsearch.config import RewardConfig
from parallelsearch.corpus.gold_paragraphs import gold_paragraphs
from parallelsearch.corpus.passages import Corpus
from parallelsearch.evaluation.episodes import Scored
from parallelsearch.records import Episode
from parallelsearch.rewards.compose import score
from parallelsearch.rewards.semantics.stepsearch import passage_text


def score_all(episodes: Sequence[Episode], weights: RewardConfig | None, corpus: Corpus) -> list[Scored]:
    """Each episode with its reward, or with None where there are no weights.

    Every episode is alone in its group, for a question is answered once. Gold paragraphs come from `corpus`.
    """
    if weights is None:
        return [(episode, None) for episode in episodes]
    gold: list[tuple[str, ...]] = [()] * len(episodes)
    if weights.semantics == "stepsearch":
        gold = gold_paragraphs([episode.question for episode in episodes], corpus, passage_text)
    return [
        (episode, score(episode, episode.question, weights, gold=paragraphs))
        for episode, paragraphs in zip(episodes, gold, strict=True)
    ]
