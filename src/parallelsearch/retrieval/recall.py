"""How many of the pages that support an answer a search with the question itself finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from parallelsearch.corpus.passages import Corpus
from parallelsearch.records import Question
from parallelsearch.retrieval.joined_searches import JoinedSearches

CUTOFFS = (3, 5, 10)
QUERIES_PER_SEARCH = 64
ALL = "all"


@dataclass(frozen=True, slots=True)
class QuestionRecall:
    """Of one question: the share of its supporting titles that the corpus has, and that the first k passages bear."""

    question: Question
    in_corpus: float
    at: dict[int, float]


@dataclass(frozen=True, slots=True)
class RecallRow:
    """Means over the questions of one data set and one structure ('all': of every structure)."""

    dataset: str
    structure: str
    questions: int
    in_corpus: float
    at: dict[int, float]


def question_recalls(
    retriever: JoinedSearches,
    questions: Sequence[Question],
    cutoffs: Sequence[int] = CUTOFFS,
    complete_only: bool = False,
) -> list[QuestionRecall]:
    """The recall of every question that has supporting titles; titles count once, and as they are spelled.

    `complete_only` leaves out questions with a supporting title that the corpus lacks.
    """
    asked = [question for question in questions if question.supporting_titles]
    known = _titles_in(retriever.corpus, {title for question in asked for title in question.supporting_titles})
    if complete_only:
        asked = [question for question in asked if known.issuperset(question.supporting_titles)]
    recalls: list[QuestionRecall] = []
    for start in range(0, len(asked), QUERIES_PER_SEARCH):
        part = asked[start : start + QUERIES_PER_SEARCH]
        lists = retriever.search_now([question.text for question in part], max(cutoffs))
        for question, hits in zip(part, lists, strict=True):
            titles, gold = [hit.passage.title for hit in hits], set(question.supporting_titles)
            at = {k: len(gold.intersection(titles[:k])) / len(gold) for k in cutoffs}
            recalls.append(QuestionRecall(question, len(gold & known) / len(gold), at))
    return recalls


def recall_rows(recalls: Sequence[QuestionRecall]) -> list[RecallRow]:
    """Of each data set, in the order of appearance: its structures, then all of them together."""
    rows: list[RecallRow] = []
    for dataset in dict.fromkeys(recall.question.dataset for recall in recalls):
        own = [recall for recall in recalls if recall.question.dataset == dataset]
        for structure in sorted({recall.question.structure.value for recall in own}):
            rows.append(_mean(dataset, structure, [r for r in own if r.question.structure == structure]))
        rows.append(_mean(dataset, ALL, own))
    return rows


def _mean(dataset: str, structure: str, recalls: Sequence[QuestionRecall]) -> RecallRow:
    at = {k: fmean(recall.at[k] for recall in recalls) for k in recalls[0].at}
    return RecallRow(dataset, structure, len(recalls), fmean(recall.in_corpus for recall in recalls), at)


def _titles_in(corpus: Corpus, wanted: set[str]) -> set[str]:
    return {passage.title for rows in corpus.rows(0, len(corpus)) for passage in rows if passage.title in wanted}
