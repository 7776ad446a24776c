"""Semantics `released`: what the published ParallelSearch code computes on the text of the model.

It differs from the equations in three ways: the search-count term is larger by lambda_s; only the first search can
count as a decomposition (when its raw text holds '##', whatever stands around it); searches are counted as occurrences
of the opening tag. Left out are the published code's accidents: tags of the prompt, of passages and of correction
messages are not read here, and an episode without an answer has none. Several answers are no answer, as everywhere in
this package.
"""

from __future__ import annotations

import re

from parallelsearch.agent.protocol import SEPARATOR, follows_format
from parallelsearch.config import RewardConfig
from parallelsearch.records import Episode, Question
from parallelsearch.rewards.components import (
    decomposition_term,
    format_term,
    is_parallel,
    needs_one_search,
    outcome,
)

_SEARCH = re.compile(r"<search>(.*?)</search>", re.DOTALL)


def decomposition(episode: Episode, question: Question, weights: RewardConfig) -> float:
    """r_d, with D(q): the raw text of the first search holds '##'."""
    first = next((found.group(1) for turn in episode.turns if (found := _SEARCH.search(turn.text))), "")
    return decomposition_term(is_parallel(question), SEPARATOR in first, weights.lambda_d, weights.alpha)


def search_count(episode: Episode, question: Question, weights: RewardConfig) -> float:
    """r_s + lambda_s, where n counts '<search>' in the model's text."""
    n = sum(turn.text.count("<search>") for turn in episode.turns)
    distance = abs(n - 1) if needs_one_search(question) else abs(min(n, 2) - 2)
    return weights.lambda_s - weights.lambda_s * distance


def format(episode: Episode, question: Question, weights: RewardConfig) -> float:
    """r_f by the order of the tags alone: a search without a sub-query is in order."""
    return format_term(outcome(episode, question) == 1.0, follows_format(episode.turns), weights.lambda_f)
