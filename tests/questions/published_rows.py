"""One small row of every published layout, written by hand after the authors' documentation, and files made of rows."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

Fields = dict[str, Any]

AUTHORS: dict[str, Fields] = {
    "hotpotqa": {
        "_id": "5a8b",
        "answer": "yes",
        "question": "Were Ada and Bob of the same nationality?",
        "supporting_facts": [["Ada", 0], ["Bob", 1], ["Ada", 2]],
        "context": [["Ada", ["Ada is American."]], ["Bob", ["Bob wrote.", " Bob is American."]]],
        "type": "comparison",
        "level": "hard",
    },
    "2wikimultihopqa": {
        "_id": "b088",
        "type": "bridge_comparison",
        "question": "Which film has the younger director, A or B?",
        "context": [["A", ["A is a film."]]],
        "supporting_facts": [["A", 0], ["B", 0], ["Director A", 0], ["Director B", 0]],
        "evidences": [["A", "director", "Director A"]],
        "answer": "B",
    },
    "musique": {
        "id": "2hop__1_2",
        "paragraphs": [
            {"idx": 0, "title": "Van Hook", "paragraph_text": "..", "is_supporting": True},
            {"idx": 1, "title": "Port Blair", "paragraph_text": "..", "is_supporting": False},
            {"idx": 2, "title": "Stanley", "paragraph_text": "..", "is_supporting": True},
        ],
        "question": "What is the seat of the county of Van Hook?",
        "question_decomposition": [
            {"id": 1, "question": "Van Hook >> county", "answer": "Mountrail County", "paragraph_support_idx": 0},
            {"id": 2, "question": "#1 >> capital", "answer": "Stanley", "paragraph_support_idx": 2},
        ],
        "answer": "Stanley",
        "answer_aliases": ["Stanley, North Dakota", "Stanley"],
        "answerable": True,
    },
    "bamboogle": {"Question": "Who was president when Citibank was founded?", "Answer": "james madison"},
    "nq": {
        "question": "when was the last time anyone was on the moon",
        "answer": ["14 December 1972 UTC", "December 1972"],
    },
    "triviaqa": {
        "Question": "Which musical premiered on 10th December 1993?",
        "QuestionId": "tc_33",
        "Answer": {
            "Value": "Sunset Boulevard",
            "Aliases": ["Sunset Blvd", "Sunset Boulevard"],
            "HumanAnswers": ["Sunset Boulevard (musical)"],
            "NormalizedValue": "sunset boulevard",
        },
    },
    "popqa": {
        "id": 4222362,
        "subj": "George Rankin",
        "prop": "occupation",
        "obj": "politician",
        "s_aliases": '["George James Rankin"]',
        "s_wiki_title": "George Rankin",
        "s_pop": 142,
        "question": "What is George Rankin's occupation?",
        "possible_answers": '["politician", "political leader", "pol"]',
    },
    "multihop_rag": {
        "query": "Do The Verge and The Age agree?",
        "answer": "no",
        "question_type": "comparison_query",
        "evidence_list": [{"title": "Apple defends deal", "fact": ".."}, {"title": "Is it fair?", "fact": ".."}],
    },
    "geoworld": {
        "qid": "geoworld-test-0",
        "dataset": "geoworld",
        "split": "test",
        "text": "Which is larger, Chad or Mali?",
        "golden_answers": ["Chad"],
        "type": "comparison",
        "structure": "parallel",
        "hops": 2,
        "supporting_titles": ["Chad", "Mali"],
        "supporting_ids": [7, 11],
    },
}


def with_number(fields: Fields, number: int) -> Fields:
    """A copy whose id (where it has one) and question differ from those of another number."""
    copy = json.loads(json.dumps(fields))
    for key in ("_id", "id", "qid", "QuestionId"):
        if key in copy:
            copy[key] = copy[key] + number if isinstance(copy[key], int) else f"{copy[key]}_{number}"
    for key in ("question", "Question", "query", "text"):
        if key in copy:
            copy[key] = f"{copy[key]} ({number})"
    return copy


def one_line(value: Any) -> str:
    """JSON with letters as they are, save for what UTF-8 cannot hold."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


def json_lines(rows: list[Any]) -> str:
    """One object a line: row i stands on line i + 1."""
    return "".join(one_line(row) + "\n" for row in rows)


def json_array(rows: list[Any]) -> str:
    """One element a line inside an array: row i stands on line i + 2."""
    return "[\n" + ",\n".join(one_line(row) for row in rows) + "\n]\n"


def table(rows: list[Fields], delimiter: str) -> str:
    """A table with a header, cells quoted where needed: row i stands on line i + 2."""
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
    writer.writerow(rows[0])
    writer.writerows(row.values() for row in rows)
    return stream.getvalue()
