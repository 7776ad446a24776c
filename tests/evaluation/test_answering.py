"""Which questions the published evaluation leaves out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from parallelsearch.evaluation.answering import without_last_batches
from parallelsearch.questions.reader import read_file
from parallelsearch.records import Question, Structure


def question(number: int, structure: Structure) -> Question:
    return Question(str(number), "d", "dev", "?", ("a",), "t", structure)


def test_the_real_comparison_questions_of_hotpotqa_are_cut_to_the_published_number(shared_data: Path) -> None:
    """The reported shares are attainable only with 1,280 of the 1,487 questions."""
    questions = read_file("hotpotqa", shared_data / "extra" / "hotpotqa_dev_qa_only.jsonl.gz", split="dev").questions
    kept = without_last_batches(questions, 256)
    counts = Counter(entry.structure for entry in kept)
    assert counts == {Structure.PARALLEL: 1280, Structure.SEQUENTIAL: 5888}
    assert [entry for entry in questions if entry in set(kept)] == kept  # in their order
    for structure in counts:
        everything = [entry for entry in questions if entry.structure is structure]
        assert [entry for entry in kept if entry.structure is structure] == everything[: counts[structure]]


@pytest.mark.parametrize(("size", "kept"), [(3040, 2816), (856, 768), (816, 768), (255, 0)])
def test_other_subsets_by_hand(size: int, kept: int) -> None:
    questions = [question(number, Structure.PARALLEL) for number in range(size)]
    assert without_last_batches(questions, 256) == questions[:kept]


def test_nothing_is_left_out_without_a_batch_size() -> None:
    questions = [question(number, Structure.MIXED) for number in range(5)]
    assert without_last_batches(questions, 0) == questions
