"""The paragraphs that answer a question, as texts of the corpus that is searched.

By passage id where the question has ids of this corpus. By title elsewhere, where the first passage of a page stands
for its paragraph: HotpotQA's and 2WikiMultiHopQA's supporting paragraphs are the introductions of their pages, while
MuSiQue's may stand further down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from parallelsearch.corpus.passages import Corpus
from parallelsearch.records import Passage, Question


def gold_paragraphs(
    questions: Sequence[Question], corpus: Corpus, text: Callable[[Passage], str]
) -> list[tuple[str, ...]]:
    """For each question the texts of its gold paragraphs, each once; none of pages that the corpus lacks."""
    titles = {title for question in questions if not question.supporting_ids for title in question.supporting_titles}
    introductions: dict[str, str] = {}
    for passage in corpus.titled(titles) if titles else ():
        introductions.setdefault(passage.title, text(passage))

    def of(question: Question) -> tuple[str, ...]:
        if question.supporting_ids:
            return tuple(text(corpus[passage_id]) for passage_id in dict.fromkeys(question.supporting_ids))
        pages = dict.fromkeys(question.supporting_titles)
        return tuple(introductions[title] for title in pages if title in introductions)

    return [of(question) for question in questions]
