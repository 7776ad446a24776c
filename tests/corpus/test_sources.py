"""Every raw layout, on real passages and by hand."""

from __future__ import annotations

import csv
import gzip
import io
import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallelsearch.corpus.raw_file import RawFile
from parallelsearch.corpus.sources import SOURCES, join_contents, split_contents
from parallelsearch.errors import DataError
from parallelsearch.titles import page_title


def raw(file: Path) -> list[dict]:
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


@pytest.mark.parametrize(
    ("contents", "title", "text"),
    [
        ('"Evan Morris"\nEvan Morris was a lobbyist.', "Evan Morris", "Evan Morris was a lobbyist."),
        ('Absalon\ncity of ""Havn"" (English: Harbour)', "Absalon", 'city of "Havn" (English: Harbour)'),
        ('"Ron ""Amen-Ra"" Lawrence"\nHe said ""no"".', 'Ron "Amen-Ra" Lawrence', 'He said "no".'),
        ('"""Uncle Tom\'s Cabin"" Contrasted"\nas before', '"Uncle Tom\'s Cabin" Contrasted', "as before"),
        ('"Two"\nfirst\nsecond line', "Two", "first\nsecond line"),
        ('".mil"\n""mil"" domain name', ".mil", '"mil" domain name'),
    ],
)
def test_contents_are_split_and_their_csv_quotes_undone(contents: str, title: str, text: str) -> None:
    assert split_contents(contents) == (title, text)


@given(st.text(alphabet='ab "é', min_size=1), st.text(alphabet='ab "\n', min_size=1))
def test_what_csv_quoting_does_to_a_title_is_undone(title: str, text: str) -> None:
    """The csv module is the independent authority on quoting."""
    title, text = title.strip() or "t", text.strip() or "x"
    buffer = io.StringIO()
    csv.writer(buffer, quoting=csv.QUOTE_ALL).writerow([title])
    quoted_title = buffer.getvalue().rstrip("\r\n")
    found = split_contents(f"{quoted_title}\n" + text.replace('"', '""'))
    assert found == (title, text)


def test_join_contents_is_what_search_r1_clients_split() -> None:
    contents = join_contents("Paris", "line one\nline two")
    assert contents.split("\n")[0] == '"Paris"'
    assert "\n".join(contents.split("\n")[1:]) == "line one\nline two"


@given(st.text(alphabet="ab\"' é", min_size=1), st.text(alphabet='ab"\n ', min_size=1))
def test_split_contents_undoes_join_contents(title: str, text: str) -> None:
    title, text = title.strip() or "t", text.strip() or "x"
    assert split_contents(join_contents(title, text)) == (title, text)


def test_join_contents_writes_rows_of_the_published_wiki18_byte_for_byte(shared_data: Path) -> None:
    """Some published titles lost their quotes on the way; all other rows are what CSV quoting makes of them."""
    contents = [row["contents"] for row in raw(shared_data / "wiki18_format_passages.jsonl.gz")]
    quoted = [row for row in contents if row.startswith('"')]
    assert len(quoted) > 0.8 * len(contents)
    assert [row for row in quoted if join_contents(*split_contents(row)) != row] == []


@pytest.mark.parametrize(
    ("source", "name"),
    [("wiki18", "wiki18_format_passages.jsonl.gz"), ("flashrag", "raw/flashrag_corpus_sample_1000.jsonl.gz")],
)
def test_real_contents_files(shared_data: Path, source: str, name: str) -> None:
    rows = raw(shared_data / name)
    found = list(SOURCES[source](RawFile(shared_data / name)))
    assert len(found) == len(rows)
    for (title, text), row in zip(found, rows, strict=True):
        assert '""""' not in title and title and text
        head, _, tail = row["contents"].partition("\n")
        # Undoing quotes removes quotes only; the published titles are decomposed (NFD), those of the questions are not.
        assert title.replace('"', "") == unicodedata.normalize("NFC", head).replace('"', "").strip()
        assert text.replace('"', "").split() == tail.replace('"', "").split()
        assert text.count('"') == tail.count('"') - tail.count('""')


def test_real_dpr_passages_as_lines_and_as_tsv(shared_data: Path, tmp_path: Path) -> None:
    rows = raw(shared_data / "dpr_psgs_with_ids.jsonl.gz")
    expected = [(row["title"].strip(), row["text"].strip()) for row in rows]
    assert list(SOURCES["dpr"](RawFile(shared_data / "dpr_psgs_with_ids.jsonl.gz"))) == expected
    tsv = tmp_path / "psgs_w100.tsv.gz"
    with gzip.open(tsv, "wt", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter="\t")
        writer.writerow(["id", "text", "title"])
        writer.writerows([row["id"], row["text"], row["title"]] for row in rows)
    assert list(SOURCES["dpr"](RawFile(tsv))) == expected


def test_contexts_of_the_official_question_files(shared_data: Path, tmp_path: Path) -> None:
    for name, listed in [
        ("raw/hotpotqa_official_100.json.gz", "context"),
        ("raw/2wikimultihopqa_official_200.json.gz", "context"),
        ("raw/musique_official_train_100.json.gz", "paragraphs"),
    ]:
        with gzip.open(shared_data / name, "rt", encoding="utf-8") as stream:
            questions = [q for q in json.load(stream) if listed in q]  # some of 2Wiki's sample lost their contexts
        assert len(questions) >= 100
        (tmp_path / "questions.json").write_text(json.dumps(questions), encoding="utf-8")
        found = list(SOURCES["qa_contexts"](RawFile(tmp_path / "questions.json")))
        titles = {page_title(title) for q in questions for title in _titles(q[listed])}
        assert {title for title, _ in found} == titles
        assert len(found) == len(set(found)) <= sum(len(q[listed]) for q in questions)
    first = questions[0]["paragraphs"][0]
    assert found[0] == (first["title"], first["paragraph_text"])


def _titles(context: list) -> list[str]:
    return [entry[0] if isinstance(entry, list) else entry["title"] for entry in context]


def test_a_file_of_paragraphs_loses_only_its_duplicates(shared_data: Path) -> None:
    rows = raw(shared_data / "corpus.jsonl.gz")
    found = list(SOURCES["qa_contexts"](RawFile(shared_data / "corpus.jsonl.gz")))
    assert found[0] == (rows[0]["title"], rows[0]["text"].strip())
    written = {(row["title"].strip(), row["text"].strip()) for row in rows}
    assert (
        len(found) == len({(unicodedata.normalize("NFC", title), text) for title, text in written}) == len(written) - 1
    )


@pytest.mark.parametrize(
    ("source", "line", "fault"),
    [
        ("wiki18", {"id": "0", "title": "a", "text": "b"}, "no field 'contents' (found: id, title, text)"),
        ("geoworld", {"id": "0", "contents": "a\nb"}, "no field 'title' (found: id, contents)"),
        ("flashrag", {"id": "0", "contents": '"only a title"'}, "'contents' has no text after the title line"),
        ("flashrag", {"id": "0", "contents": '""\ntext'}, "'contents' begins with an empty title"),
        ("qa_contexts", {"context": [["T", "not a list"]]}, "paragraph 1: neither [title, sentences] nor an object"),
        ("qa_contexts", {"question": "Who?"}, "no field 'context or contexts or paragraphs' (found: question)"),
        ("qa_contexts", {"context": [["T", []]]}, "paragraph 1: 'text' is empty"),
        ("dpr", {"id": "0", "title": "a", "text": ""}, "'text' is empty"),
    ],
)
def test_a_wrong_layout_names_line_and_key(tmp_path: Path, source: str, line: dict, fault: str) -> None:
    file = tmp_path / "raw.jsonl"
    file.write_text(json.dumps(line) + "\n", encoding="utf-8")
    with pytest.raises(DataError) as raised:
        list(SOURCES[source](RawFile(file)))
    assert f"{file}, " in str(raised.value) and fault in str(raised.value)
