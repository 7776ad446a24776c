"""Each raw layout of a corpus as a stream of (title, text). SOURCES is the one table of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any

from parallelsearch.columns import rows_of, unspelled
from parallelsearch.config import PassageLayout
from parallelsearch.corpus.raw_file import NEXT_STEP, RawFile, RawRow, json_rows, open_text, records, tsv_rows
from parallelsearch.corpus.words import word_blocks
from parallelsearch.errors import DataError
from parallelsearch.questions.text import unescape
from parallelsearch.titles import page_title

TitledText = tuple[str, str]
CONTEXT_FIELDS = ("context", "contexts", "paragraphs")
TEXT_FIELDS = ("text", "paragraph_text", "sentences", "content")
DETAILS_FIELDS = ("metadata", "extra_info")  # where FlashRAG's and veRL's copies keep what only one data set has
DPR_COLUMNS = ("id", "text", "title")


def read_titled(raw: RawFile) -> Iterator[TitledText]:
    """JSON lines with id, title and text (GeoWorld, and the JSON-lines form of DPR's passages)."""
    for row in json_rows(raw):
        yield row.title(), row.text("text")


def read_dpr(raw: RawFile) -> Iterator[TitledText]:
    """DPR's psgs_w100.tsv (columns id, text, title; cells CSV-quoted), or the same as JSON lines."""
    with open_text(raw) as stream:
        is_json = stream.read(64).lstrip().startswith("{")
    if is_json:
        yield from read_titled(raw)
        return
    for row in tsv_rows(raw, DPR_COLUMNS):
        yield row.title(), row.text("text")


def read_contents(raw: RawFile) -> Iterator[TitledText]:
    """JSON lines with id and contents, the layout of wiki-18 and FlashRAG (see `split_contents`)."""
    for row in json_rows(raw):
        title, text = split_contents(row.text("contents"))
        title = page_title(title)
        if not title:
            raise DataError(f"{row.place}: 'contents' begins with an empty title; {NEXT_STEP}.")
        if not text:
            raise DataError(f"{row.place}: 'contents' has no text after the title line; check the source's layout.")
        yield title, text


def read_qa_contexts(raw: RawFile) -> Iterator[TitledText]:
    """The distinct paragraphs of a question file in the order of first appearance.

    Understands `context` as [[title, [sentence, ...]], ...] (HotpotQA, 2WikiMultiHopQA), as a list of objects with
    title and text, and as columns (`datasets`), MuSiQue's `paragraphs`, the same under `metadata` (FlashRAG), and a
    file whose rows are paragraphs themselves (title and text): JSON lines, a JSON array or parquet.
    Memory holds 16 bytes (about 100 in Python) for each distinct paragraph.
    """
    seen: set[bytes] = set()
    paragraphs = 0
    for row in records(raw):
        for title, text in _paragraphs(row):
            paragraphs += 1
            digest = blake2b(f"{title}\n{text}".encode(), digest_size=16).digest()
            if digest in seen:
                raw.dropped["duplicate"] += 1
                continue
            seen.add(digest)
            yield title, text
    raw.read = paragraphs  # what this source counts instead of the rows they stand in


def read_own(raw: RawFile, layout: PassageLayout | None = None) -> Iterator[TitledText]:
    """Texts of one's own as `records` reads them, with the fields and in the passages that `layout` says."""
    layout = layout or PassageLayout()
    for row in records(raw):
        title = row.title(layout.title)
        text = " ".join(unescape(row.text(layout.text)).split())
        for block in word_blocks(text, layout.words) if layout.words else [text]:
            yield title, block


def split_contents(contents: str) -> TitledText:
    """Title and text of a `contents` string: the first line is the title, the rest the text.

    The published passages went through CSV: titles (most of them) stand in quotes, and a quote inside title or text is
    doubled. Both are undone.
    """
    title, _, text = contents.partition("\n")
    title = title.strip()
    if len(title) > 1 and title.startswith('"') and title.endswith('"'):
        title = title[1:-1]
    return title.replace('""', '"').strip(), text.replace('""', '"').strip()


def join_contents(title: str, text: str) -> str:
    """Title and text as a row of the published wiki-18: quoted title, line break, text, quotes inside doubled.

    `split_contents` gives title and text back.
    """
    title, text = title.replace('"', '""'), text.replace('"', '""')
    return f'"{title}"\n{text}'


def _paragraphs(row: RawRow) -> Iterator[TitledText]:
    listed = _listed(row.fields)
    if listed is None:
        if "question" in row.fields:
            found = ", ".join(row.fields)
            raise DataError(f"{row.place}: no field '{' or '.join(CONTEXT_FIELDS)}' (found: {found}); {NEXT_STEP}.")
        yield row.title(), unescape(row.text("text", "paragraph_text"))
        return
    if not isinstance(listed, list):
        kind = type(listed).__name__
        raise DataError(f"{row.place}: the context is {kind}, not a list or columns of one length; {NEXT_STEP}.")
    for number, paragraph in enumerate(listed, start=1):
        yield _paragraph(paragraph, f"{row.place}, paragraph {number}")


def _listed(fields: dict[str, Any]) -> Any:
    """The paragraphs of a row, or of what it keeps in its `metadata`; None where it has none."""
    inner = (unspelled(fields.get(name)) for name in DETAILS_FIELDS)
    for holder in (fields, *(value for value in inner if isinstance(value, dict))):
        for name in CONTEXT_FIELDS:
            if holder.get(name) is not None:
                return rows_of(holder[name])
        steps = rows_of(holder.get("question_decomposition"))
        if isinstance(steps, list):  # FlashRAG's copy of MuSiQue keeps the supporting paragraphs there alone
            found = [step.get("support_paragraph") for step in steps if isinstance(step, dict)]
            if any(found):
                return [paragraph for paragraph in found if paragraph]
    return None


def _paragraph(paragraph: Any, place: str) -> TitledText:
    fields: dict[str, Any]
    match paragraph:
        case [str() as title, [*sentences]]:
            fields = {"title": title, "text": sentences}
        case dict():
            fields = dict(paragraph)
        case _:
            raise DataError(f"{place}: neither [title, sentences] nor an object with title and text; {NEXT_STEP}.")
    for name in TEXT_FIELDS:
        value = fields.get(name)
        if isinstance(value, list):
            if not all(isinstance(sentence, str) for sentence in value):
                raise DataError(f"{place}: a sentence is no text; {NEXT_STEP}.")
            fields[name] = " ".join(sentence.strip() for sentence in value)
    checked = RawRow(fields, place)
    return checked.title(), unescape(checked.text(*TEXT_FIELDS))


def read_mediawiki(raw: RawFile) -> Iterator[TitledText]:
    """MediaWiki's XML dump in passages of 100 words (see `wiki_dump`, which only a dump needs to be loaded)."""
    from parallelsearch.corpus.wiki_dump.passages import read_mediawiki as passages_of_dump

    yield from passages_of_dump(raw)


SOURCES: dict[str, Callable[[RawFile], Iterator[TitledText]]] = {
    "geoworld": read_titled,
    "dpr": read_dpr,
    "wiki18": read_contents,
    "flashrag": read_contents,
    "qa_contexts": read_qa_contexts,
    "mediawiki": read_mediawiki,
    "own": read_own,
}
