"""Semantics `paper`: equations 3 to 7 of ParallelSearch (arXiv 2508.09303)."""

from __future__ import annotations

from parallelsearch.config import RewardConfig
from parallelsearch.records import Episode, Question
from parallelsearch.rewards.components import (
    decomposition_term,
    format_term,
    is_parallel,
    needs_one_search,
    outcome,
)


def decomposition(episode: Episode, question: Question, weights: RewardConfig) -> float:
    """r_d, equation 4. D(q): some search turn held two or more non-empty sub-queries, repeated ones included."""
    decomposed = any(len(turn.sub_queries) > 1 for turn in episode.turns)
    return decomposition_term(is_parallel(question), decomposed, weights.lambda_d, weights.alpha)


def search_count(episode: Episode, question: Question, weights: RewardConfig) -> float:
    """r_s, equation 5, unbounded below, where n is the number of search turns.

    -lambda_s |n - 1| for parallel and single questions, -lambda_s |min(n, 2) - 2| for all others.
    """
    n = episode.searches
    distance = abs(n - 1) if needs_one_search(question) else abs(min(n, 2) - 2)
    return weights.lambda_s * -distance


def format(episode: Episode, question: Question, weights: RewardConfig) -> float:
    """r_f, equations 6 and 7."""
    return format_term(outcome(episode, question) == 1.0, episode.well_formed, weights.lambda_f)
