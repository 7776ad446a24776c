"""The parts of the reward that all semantics share, and the shape every component function has.

A component is a pure function of an Episode, its Question and the weights; it never sees a decoded string that holds a
prompt or a passage.
"""

from __future__ import annotations

from parallelsearch.answers import exact_match
from parallelsearch.records import Episode, Question, Structure


def outcome(episode: Episode, question: Question) -> float:
    """r_o, equation 3: exact match of the answer that ended the episode, 0.0 or 1.0. No answer scores 0."""
    return exact_match(episode.answer, question.golden_answers)


def is_parallel(question: Question) -> bool:
    """True for P of equation 4: questions whose look-ups are independent."""
    return question.structure is Structure.PARALLEL


def needs_one_search(question: Question) -> bool:
    """True for P and S of equation 5: one search turn suffices."""
    return question.structure in (Structure.PARALLEL, Structure.SINGLE)


def decomposition_term(parallel: bool, decomposed: bool, lambda_d: float, alpha: float) -> float:
    """r_d, equation 4: alpha * lambda_d or lambda_d where decomposing was right, or not decomposing; 0 otherwise."""
    if parallel:
        return alpha * lambda_d if decomposed else 0.0
    return 0.0 if decomposed else lambda_d


def format_term(correct: bool, well_formed: bool, lambda_f: float) -> float:
    """r_f, equations 6 and 7: -lambda_f for a right answer in a bad format, +lambda_f for a wrong one in a good one."""
    if correct:
        return 0.0 if well_formed else -lambda_f
    return lambda_f if well_formed else 0.0
