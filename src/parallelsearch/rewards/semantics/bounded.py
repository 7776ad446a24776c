"""Semantics `bounded`: the paper's four terms, changed so that none of them can be farmed.

- A decomposition needs two different non-empty sub-queries in one turn.
- The search-count term is two-sided and lies in [-2 lambda_s, 0]: searching on and on costs no more than two searches
  too many, and never pays.
- The format term is worth at most half an exact match, so a wrong answer totals less than a right one whenever the two
  episodes search alike and are alike in format.

The total lies in [-2 lambda_s, 1 + max(1, alpha) lambda_d].
"""

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

LARGEST_DISTANCE = 2
LARGEST_FORMAT_WEIGHT = 0.5


def decomposition(episode: Episode, question: Question, weights: RewardConfig) -> float:
    """r_d, equation 4, with D(q): some search turn held two or more different sub-queries (Episode.decomposed)."""
    return decomposition_term(is_parallel(question), episode.decomposed, weights.lambda_d, weights.alpha)


def search_count(episode: Episode, question: Question, weights: RewardConfig) -> float:
    """r_s = -lambda_s * min(distance, 2); distance is how far the number of search turns n lies from what is needed.

    Needed is 1 for parallel and single questions. For all others it is 2 where the number of hops is unknown, and
    anything from 2 to the number of hops where it is known, for these may take one turn a hop.
    """
    fewest = 1 if needs_one_search(question) else 2
    most = 1 if needs_one_search(question) else max(2, question.hops or 2)
    n = episode.searches
    distance = max(fewest - n, n - most, 0)
    return weights.lambda_s * -min(distance, LARGEST_DISTANCE)


def format(episode: Episode, question: Question, weights: RewardConfig) -> float:
    """r_f, equations 6 and 7, with lambda_f cut to 0.5."""
    correct = outcome(episode, question) == 1.0
    return format_term(correct, episode.well_formed, min(weights.lambda_f, LARGEST_FORMAT_WEIGHT))
