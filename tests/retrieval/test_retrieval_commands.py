"""The stages by hand, from a raw file to a search, and what a user reads after a mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_study import Study

from parallelsearch.cli import main
from parallelsearch.retrieval.retriever import LocalRetriever


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one command."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_from_a_raw_file_to_a_search(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, encoder_dir: Path, small_rows: list[dict[str, str]]
) -> None:
    raw = tmp_path / "raw.jsonl"
    lines = [{"id": n, "contents": f'"{row["title"]}"\n{row["text"]}'} for n, row in enumerate(small_rows[:9])]
    raw.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    corpus, embeddings, index = (tmp_path / name for name in ("corpus", "embeddings", "index"))
    settings = json.dumps({"tokens_per_batch": 512, "shards": 2})
    for step in (
        ("corpus", "build", "wiki18", raw, corpus, "--licence", "CC BY-SA 3.0"),
        ("embed", corpus, encoder_dir, embeddings, "--shard", 1, "--of", 2, "--settings", settings),
        ("embed", corpus, encoder_dir, embeddings, "--shard", 0, "--of", 2),
        ("embed-manifest", corpus, encoder_dir, embeddings, "--of", 2),
        ("index", "build", corpus, embeddings, index, "--settings", '{"kind": "hnsw", "parameters": {"M": 8}}'),
    ):
        code, out, err = run(capsys, *step)
        assert code == 0, err
    assert "hnsw, 9 vectors, recall@3 1.0, recall@9 1.0" in out
    (hits,) = LocalRetriever.open(index, device="cpu").search_now([small_rows[4]["title"]], 2)
    assert hits[0].passage.title == small_rows[4]["title"]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ("{kind: flat}", "is not valid JSON"),
        ("[]", "is not a JSON object"),
        ('{"kind": "pq"}', "'kind' is 'pq'"),
        ('{"kind": "bm25"}', "index.kind is 'bm25', which is not built from embeddings alone; use"),
        ('{"nprobe": 4}', "unknown key 'nprobe' (value 4); allowed here: kind, parameters, device"),
        ('{"kind": "flat", "parameters": {"nprobe": 4}}', "'nprobe', unknown to kind 'flat'"),
    ],
)
def test_wrong_settings_are_one_sentence(
    capsys: pytest.CaptureFixture[str], study: Study, tmp_path: Path, settings: str, named: str
) -> None:
    command = ("index", "build", study.corpus, study.embeddings, tmp_path / "index", "--settings", settings)
    code, _, err = run(capsys, *command)
    assert code == 1 and named in err and err.count("\n") == 1
    assert not (tmp_path / "index").exists()


def test_a_wrong_raw_file_is_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "raw.jsonl").write_text('{"id": 0, "title": "a", "text": "b"}\n')
    code, _, err = run(capsys, "corpus", "build", "wiki18", tmp_path / "raw.jsonl", tmp_path / "corpus")
    assert code == 1 and "raw.jsonl, line 1: no field 'contents' (found: id, title, text)" in err


def test_the_plan_names_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "index", "plan", "--rows", 21_015_324, "--dim", 768)
    assert code == 0
    assert "embeddings on disk: 30.06 GiB" in out
    kinds = ["flat", "flat_fp16", "flat_int8", "ivf_flat", "ivf_pq", "hnsw"]
    assert [line.split()[0] for line in out.splitlines()[2:-1]] == kinds
    assert out.splitlines()[2].split()[1:3] == ["60.13", "GiB"] and "estimates for one core" in out.splitlines()[-1]
