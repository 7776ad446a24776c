"""The sizes of whole splits: the paper's subsets (its Table 5), counted on the real development sets."""

from __future__ import annotations

from pathlib import Path

import pytest

from parallelsearch import cli
from parallelsearch.config_files import load_study
from parallelsearch.errors import MismatchError
from parallelsearch.plan.planning import StudyPlan
from parallelsearch.questions.reader import read_file
from parallelsearch.questions.sizes import WantedSizes, check_sizes

PAPER = StudyPlan(load_study(Path("config/paper.yaml")))
TABLE_5 = {  # subset -> questions, as the paper prints them
    "hotpotqa.dev": {"parallel": 1487, "sequential": 5918},
    "2wikimultihopqa.dev": {"parallel": 3040, "sequential": 6785},
    "multihop_rag.test": {"parallel": 856, "sequential": 816},
}


def test_the_papers_subsets_are_declared_with_their_sizes() -> None:
    for name, sizes in TABLE_5.items():
        declared = WantedSizes.model_validate_json(PAPER.question_sizes(name)).structures
        assert {tag: declared[tag] for tag in sizes} == sizes
    splits = [(dataset, split) for dataset, of in PAPER.study.datasets.items() for split in of.splits]
    assert all(PAPER.study.datasets[dataset].splits[split].questions for dataset, split in splits)
    whole = ["nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle"]
    sizes = [
        file.questions
        for dataset in whole
        for split, file in PAPER.study.datasets[dataset].splits.items()
        if split != "train"
    ]
    assert sum(filter(None, sizes)) == 51_713  # the seven test sets together


@pytest.mark.parametrize(
    ("question_set", "file"),
    [
        ("hotpotqa.dev", "hotpotqa_dev_qa_only.jsonl.gz"),
        ("musique.dev", "musique_dev_qa_only.jsonl.gz"),
    ],
)
def test_the_real_development_sets_have_these_sizes(
    question_set: str, file: str, shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset, split = question_set.split(".")
    out = tmp_path / "questions.parquet"
    arguments = [dataset, str(shared_data / "extra" / file), str(out), "--split", split]
    with pytest.raises(SystemExit) as stop:
        cli.main(["questions", "import", *arguments, "--expect", PAPER.question_sizes(question_set)])
    assert not stop.value.code, capsys.readouterr().err
    assert out.is_file()


def test_a_cut_file_is_refused_with_every_number_and_leaves_nothing(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = shared_data / "raw" / "hotpotqa_official_100.json.gz"
    out = tmp_path / "questions.parquet"
    with pytest.raises(SystemExit) as stop:
        cli.main(
            ["questions", "import", "hotpotqa", str(file), str(out), "--expect", PAPER.question_sizes("hotpotqa.dev")]
        )
    assert stop.value.code == 1
    said = capsys.readouterr().err
    assert "100 questions where 7405 are declared" in said and "where 1487 are declared" in said
    assert list(tmp_path.iterdir()) == []
    questions = read_file("hotpotqa", file, split="dev").questions
    check_sizes(questions, WantedSizes(questions=100), file)
    with pytest.raises(MismatchError, match="100 questions where 99 are declared"):
        check_sizes(questions, WantedSizes(questions=99), file)
