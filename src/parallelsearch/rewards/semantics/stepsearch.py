"""Semantics `stepsearch`: the reward of StepSearch (arXiv 2505.15107), a part of which stands at each search.

At the end of the episode stands the global reward, F1 of the answer + gamma_key * key score; it is -1 instead when the
text does not end right after </answer>. The key score is the mean over the gold key groups of the largest F1 between a
sub-query and a key of the group.

At the end of search t stands G_t - P_t:

- G_t = mean over gold paragraphs i of max(c_i - m_i, 0), where c_i is the largest TF-IDF cosine between a passage that
  search t retrieved and paragraph i, and m_i the largest of the searches before;
- P_t is the share of the retrieved passages that had been retrieved before, by passage id; where two sub-queries of one
  search find the same passage, the second one has found it before.

What differs from the source. Its key groups are search words that GPT-4o wrote for MuSiQue; here each title of a
supporting page is a group with one key. Its gold paragraphs come with MuSiQue; here they are passages of the corpus
that is searched (corpus/gold_paragraphs.py). It leaves the TF-IDF space open; here it is fitted on the two texts that
are compared, so that a passage has the same cosine whatever else was retrieved (scikit-learn's defaults, English stop
words left out). A question without supporting pages has key score 0 and gain 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from statistics import fmean

from parallelsearch.answers import f1_score
from parallelsearch.config import StepSearchConfig
from parallelsearch.records import Action, Episode, Passage, Question, Turn
from parallelsearch.rewards.breakdown import RewardBreakdown

UNFINISHED = -1.0


def reward(episode: Episode, question: Question, weights: StepSearchConfig, gold: Sequence[str]) -> RewardBreakdown:
    """The terms f1 and key (both 0 in an unfinished episode), format (-1 there, else 0) and steps, the sum of by_turn.

    `gold` are the texts of the gold paragraphs, made as passage_text makes them.
    """
    by_turn = step_rewards(episode.turns, weights, gold)
    terms = {"f1": 0.0, "key": 0.0, "format": UNFINISHED}
    if ends_with_answer(episode):
        terms = {
            "f1": f1_score(episode.answer, question.golden_answers),
            "key": weights.gamma_key * key_score(episode, question),
            "format": 0.0,
        }
    return RewardBreakdown.sum_of({**terms, "steps": sum(by_turn)}, by_turn)


def ends_with_answer(episode: Episode) -> bool:
    """True when nothing but white space follows the closing tag of the answer that ended the episode."""
    return episode.answer is not None and episode.turns[-1].text.rstrip().endswith("</answer>")


def key_score(episode: Episode, question: Question) -> float:
    """Mean over the supporting titles of the largest F1 between a sub-query and the title, in [0, 1]."""
    queries = [sub_query.text for turn in episode.turns for sub_query in turn.sub_queries]
    best = [
        max((f1_score(query, [title]) for query in queries), default=0.0)
        for title in dict.fromkeys(question.supporting_titles)
    ]
    return fmean(best) if best else 0.0


def step_rewards(turns: Sequence[Turn], weights: StepSearchConfig, gold: Sequence[str]) -> tuple[float, ...]:
    """G_t - P_t for each turn, each part where its switch is on; 0 for a turn that did not search."""
    seen: set[int] = set()
    best = [0.0] * len(gold)
    rewards = []
    for turn in turns:
        passages = retrieved(turn)
        gain, penalty = information_gain(passages, gold, best), redundancy(passages, seen)
        rewards.append(gain * weights.information_gain - penalty * weights.redundancy_penalty)
    return tuple(rewards)


def retrieved(turn: Turn) -> list[Passage]:
    """The passages of a search turn in the order of its sub-queries."""
    if turn.action is not Action.SEARCH:
        return []
    return [hit.passage for sub_query in turn.sub_queries for hit in sub_query.hits]


def information_gain(passages: Sequence[Passage], gold: Sequence[str], best: list[float]) -> float:
    """G_t; raises `best`, the running maxima, to what these passages reach."""
    gains = []
    for number, paragraph in enumerate(gold):
        cosine = max((tfidf_cosine(passage_text(passage), paragraph) for passage in passages), default=0.0)
        gains.append(max(cosine - best[number], 0.0))
        best[number] = max(best[number], cosine)
    return fmean(gains) if gains else 0.0


def redundancy(passages: Sequence[Passage], seen: set[int]) -> float:
    """P_t; adds the passages to `seen`."""
    repeated = 0
    for passage in passages:
        repeated += passage.id in seen
        seen.add(passage.id)
    return repeated / len(passages) if passages else 0.0


def passage_text(passage: Passage) -> str:
    """What is compared of a passage, and what a gold paragraph consists of."""
    return f"{passage.title}\n{passage.text}"


@lru_cache(maxsize=8192)  # the rollouts of a prompt retrieve the same passages again and again
def tfidf_cosine(first: str, second: str) -> float:
    """Cosine of two texts in the TF-IDF space of these two, in [0, 1]; 0 where no word is left to compare."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    try:
        vectors = TfidfVectorizer(stop_words="english").fit_transform([first, second])
    except ValueError:  # scikit-learn's refusal of an empty vocabulary
        return 0.0
    return min(float(vectors[0].multiply(vectors[1]).sum()), 1.0)  # the rows have length 1
