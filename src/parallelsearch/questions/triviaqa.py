"""TriviaQA (Joshi et al., 2017): {"Data": [..]} with nested answers; `datasets` publishes the same in lower case."""

from __future__ import annotations

from parallelsearch.questions.layouts import Details, Reader, own_layout
from parallelsearch.questions.row import Row

UNKNOWN = "<unk>"


def answers(row: Row) -> list[str]:
    """The answer, its aliases, and the annotators' answers where there are any: what the authors' scorer accepts.

    The test split has '<unk>' for an answer: none.
    """
    answer = row.object("Answer", "answer")
    found = [
        answer.text("Value", "value"),
        *answer.texts("Aliases", "aliases", required=False),
        *answer.texts("HumanAnswers", "human_answers", required=False),
    ]
    return [text for text in found if text != UNKNOWN]


def details(row: Row, qid: str | None) -> Details:
    return Details(hops=1)


READER = Reader(
    "triviaqa",
    details,
    (
        own_layout(
            question=("Question", "question"),
            answer=("Answer", "answer"),
            qid=("QuestionId", "question_id"),
            answers=answers,
        ),
    ),
    answered=("train", "dev"),
)
