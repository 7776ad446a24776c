"""passages.parquet: written in row groups, read back by id, refused when it is not what the manifest says."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from dumps import dump, page

from parallelsearch.cli import main
from parallelsearch.corpus import passages
from parallelsearch.corpus.passages import PASSAGES, Corpus, build_corpus
from parallelsearch.errors import DataError, MismatchError
from parallelsearch.files import MANIFEST, read_json, sha256, write_json


def titled_file(path: Path, rows: int) -> Path:
    lines = [json.dumps({"id": n, "title": f"T{n}", "text": f"text number {n} é"}) for n in range(rows)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_the_manifest_describes_file_and_input(tmp_path: Path) -> None:
    file = titled_file(tmp_path / "p.jsonl", 5)
    manifest = build_corpus("geoworld", file, tmp_path / "corpus", licence="CC0")
    assert manifest == read_json(tmp_path / "corpus" / MANIFEST)
    assert manifest["sha256"] == sha256(tmp_path / "corpus" / PASSAGES)
    assert manifest["input_sha256"] == sha256(file)
    assert (manifest["rows"], manifest["words_per_passage"], manifest["licence"]) == (5, 4.0, "CC0")


def test_real_passages_of_100_words(shared_data: Path, tmp_path: Path) -> None:
    """DPR's passages have 100 words (Karpukhin et al. 2020, section 4.1)."""
    file = shared_data / "raw/flashrag_corpus_sample_1000.jsonl.gz"
    manifest = build_corpus("flashrag", file, tmp_path / "corpus")
    assert manifest["rows"] == 1000
    assert manifest["words_per_passage"] == pytest.approx(100, abs=1)
    corpus = Corpus(tmp_path / "corpus")
    assert corpus[0].title == "Evan Morris"
    assert corpus[999] == next(iter(corpus.rows(999, 1000)))[0]


def test_ids_are_row_numbers_over_all_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passages, "ROWS_PER_GROUP", 7)
    build_corpus("geoworld", titled_file(tmp_path / "p.jsonl", 30), tmp_path / "corpus")
    assert pq.ParquetFile(tmp_path / "corpus" / PASSAGES).num_row_groups == 5
    corpus = Corpus(tmp_path / "corpus")
    assert [corpus[n].title for n in range(30)] == [f"T{n}" for n in range(30)]
    for start, stop in [(0, 30), (6, 8), (7, 14), (13, 29), (29, 30), (5, 5)]:
        found = [p for batch in corpus.rows(start, stop, batch=4) for p in batch]
        assert [(p.id, p.title) for p in found] == [(n, f"T{n}") for n in range(start, stop)]
    for outside in (-1, 30):
        with pytest.raises(IndexError):
            corpus[outside]


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    file = titled_file(tmp_path / "p.jsonl", 20)
    first, second = (build_corpus("geoworld", file, tmp_path / name) for name in ("a", "b"))
    assert first == second


def test_a_faulty_input_leaves_nothing_behind(tmp_path: Path) -> None:
    file = titled_file(tmp_path / "p.jsonl", 3)
    build_corpus("geoworld", file, tmp_path / "corpus")
    file.write_text(file.read_text() + '\n{"id": 3, "title": "T3"}\n')
    with pytest.raises(DataError, match=r"p\.jsonl, line 4: no field 'text'"):
        build_corpus("geoworld", file, tmp_path / "corpus")
    assert not (tmp_path / "corpus" / MANIFEST).exists()
    assert [p.name for p in (tmp_path / "corpus").iterdir()] == [PASSAGES]


def test_an_empty_input_and_an_unknown_source_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text("\n")
    with pytest.raises(DataError, match="holds no passages"):
        build_corpus("geoworld", file, tmp_path / "corpus")
    with pytest.raises(DataError, match="corpus source is 'wiki-18', which is unknown; known sources: geoworld, dpr"):
        build_corpus("wiki-18", file, tmp_path / "corpus")


def test_a_truncated_or_exchanged_parquet_file_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    build_corpus("geoworld", titled_file(tmp_path / "p.jsonl", 9), folder)
    whole = (folder / PASSAGES).read_bytes()
    (folder / PASSAGES).write_bytes(whole[:-20])
    with pytest.raises(DataError, match=r"passages\.parquet is truncated or broken"):
        Corpus(folder)
    (folder / PASSAGES).write_bytes(whole)
    manifest = read_json(folder / MANIFEST)
    write_json(folder / MANIFEST, {**manifest, "rows": 8})
    with pytest.raises(MismatchError, match="has 9 rows, but its manifest says 8"):
        Corpus(folder)
    write_json(folder / MANIFEST, manifest)
    assert len(Corpus(folder)) == 9
    (folder / PASSAGES).unlink()
    with pytest.raises(DataError, match=r"passages\.parquet is missing"):
        Corpus(folder)


def test_records_are_counted_with_the_reason_of_each_that_is_left_out(tmp_path: Path) -> None:
    paragraph = ["Oslo", ["Oslo is a city."]]
    questions = [{"context": [paragraph, ["Lima", ["Lima is a city."]]]}, {"context": [paragraph]}]
    (tmp_path / "q.json").write_text(json.dumps(questions))
    manifest = build_corpus("qa_contexts", tmp_path / "q.json", tmp_path / "corpus")
    counts = [manifest[key] for key in ("rows", "records_read", "records_used", "records_dropped")]
    assert counts == [2, 3, 2, {"duplicate": 1}]
    manifest = build_corpus("geoworld", titled_file(tmp_path / "p.jsonl", 5), tmp_path / "corpus")
    assert [manifest[key] for key in ("records_read", "records_used", "records_dropped")] == [5, 5, {}]


def test_a_dump_of_redirects_only_and_no_workers_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "d.xml"
    file.write_text(dump(page("A", "#REDIRECT [[B]]", redirect="B"), page("Talk:A", "talk", ns=1)))
    with pytest.raises(
        DataError, match=r"holds no passages \(left out: 1 other namespace, 1 redirect\); check the path"
    ):
        build_corpus("mediawiki", file, tmp_path / "corpus")
    with pytest.raises(DataError, match="the number of workers is 0; give 1 or more"):
        build_corpus("mediawiki", file, tmp_path / "corpus", workers=0)


def test_the_command_says_what_was_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "d.xml"
    file.write_text(dump(page("A", "Text of three words."), page("B", "#REDIRECT [[A]]", redirect="A")))
    with pytest.raises(SystemExit) as ended:
        main(["corpus", "build", "mediawiki", str(file), str(tmp_path / "corpus"), "--workers", "2"])
    assert ended.value.code in (0, None)
    output = capsys.readouterr().out
    assert "1 passages, 4.0 words each on average" in output
    assert "2 records read; left out: 1 redirect" in output
    assert "d.xml" in output and "2 passages" not in output
