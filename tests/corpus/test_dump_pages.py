"""The articles of a dump: encodings, packing, what is counted out, and what is said about a file that is no dump."""

from __future__ import annotations

import bz2
import gc
import gzip
from pathlib import Path
from xml.etree.ElementTree import Element

import pytest
from dumps import dump, page, repeated

from parallelsearch.corpus.raw_file import RawFile
from parallelsearch.corpus.wiki_dump.pages import DumpReader
from parallelsearch.errors import DataError

ZURICH = dump(page("Zürich", "Die Stadt liegt in der Schweiz – am See."))


def read(path: Path) -> tuple[list[tuple[str, str]], DumpReader]:
    reader = DumpReader(RawFile(path))
    return [(article.title, article.markup) for article in reader.articles()], reader


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "windows-1252"])
@pytest.mark.parametrize("declared", [True, False])
def test_the_encoding_is_the_one_that_the_xml_says(tmp_path: Path, encoding: str, declared: bool) -> None:
    if encoding == "windows-1252" and not declared:
        pytest.skip("nothing tells this encoding")
    name = encoding.removesuffix("-sig")
    declaration = f'<?xml version="1.0" encoding="{name}"?>\n' if declared else ""
    articles, _ = read(write(tmp_path / "d.xml", (declaration + ZURICH).encode(encoding)))
    assert articles == [("Zürich", "Die Stadt liegt in der Schweiz – am See.")]


def test_packed_files_are_known_by_content_and_all_streams_are_read(tmp_path: Path) -> None:
    plain, multistream = repeated(ZURICH, 3)
    for number, data in enumerate([plain, gzip.compress(plain), bz2.compress(plain), multistream]):
        articles, reader = read(write(tmp_path / f"d{number}", data))
        assert [title for title, _ in articles] == ["Zürich"] * 3
        assert reader.raw.read == 3


def test_what_is_no_article_is_counted_by_reason(tmp_path: Path) -> None:
    pages = [
        page("Kept", "text"),
        page("Talk:Kept", "talk", ns=1),
        page("Talk:Moved", "#REDIRECT [[Talk:Kept]]", ns=1, redirect="Talk:Kept"),
        page("Moved", "#WEITERLEITUNG [[Kept]]", redirect="Kept"),
        page("Moved long ago", " # redirect [[Kept]]"),  # as dumps before export-0.4 have it
        page("Q42", '{"labels": {}}', model="<model>wikibase-item</model>"),
        page("Old_dump", "text of a dump without models", model=""),
        page("Talk:Old", "its namespace stands in the title only", ns=None),
        page("Star Trek: Insurrection", "a film, no namespace", ns=None),
    ]
    articles, reader = read(write(tmp_path / "d.xml", dump(*pages).encode()))
    assert [title for title, _ in articles] == ["Kept", "Old dump", "Star Trek: Insurrection"]
    assert reader.raw.read == 9
    assert reader.raw.dropped == {"other namespace": 3, "redirect": 2, "not wikitext": 1}


def test_the_last_revision_stands_and_a_page_may_have_none(tmp_path: Path) -> None:
    revision = "<revision><id>{0}</id><timestamp>2020-01-0{0}T00:00:00Z</timestamp><text>{1}</text></revision>"
    history = revision.format(1, "old") + revision.format(2, "new")
    pages = (
        f"<page><title>A</title><ns>0</ns><id>1</id>{history}</page><page><title>B</title><ns>0</ns><id>2</id></page>"
    )
    articles, _ = read(write(tmp_path / "d.xml", dump(pages).encode()))
    assert articles == [("A", "new"), ("B", "")]


def test_names_of_namespaces_come_from_the_dump_and_a_dump_may_say_none(tmp_path: Path) -> None:
    _, reader = read(write(tmp_path / "d.xml", ZURICH.encode()))
    assert reader.hidden_namespaces == {"file", "image", "media", "category", "datei", "kategorie"}
    articles, reader = read(write(tmp_path / "n.xml", dump(page("A", "a"), siteinfo="").encode()))
    assert articles == [("A", "a")]
    assert reader.hidden_namespaces == {"file", "image", "media", "category"}


FIRST, SECOND = page("First", "one"), page("Second", "two")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (dump(FIRST, SECOND)[:-60], "at line 13, column "),  # 2 lines of the head, 6 of First, in the 5th of Second
        (dump(FIRST).removesuffix("</mediawiki>\n"), "at line 9, column 0 (no element found)"),
        (dump(FIRST, "<page><title>R&D</title></page>"), "at line 9, column "),
        (dump(FIRST, SECOND.replace("</title>", "")), "at line 14, column 2 (mismatched tag)"),
        (dump(FIRST, SECOND.replace("two", "\x01")), "at line 13, column "),
        (dump(FIRST, SECOND.replace("<id>1</id>", "<id>one</id>")), "in the page after it"),
        (dump(FIRST, SECOND.replace("<title>Second</title>", "")), "in the page after it"),
        (dump(FIRST, SECOND.replace("2020-01-01T", "yesterday")), "in the page after it"),
    ],
)
def test_a_truncated_or_malformed_dump_names_the_place_and_the_last_whole_page(
    tmp_path: Path, text: str, fault: str
) -> None:
    file = write(tmp_path / "d.xml", text.encode())
    with pytest.raises(DataError) as raised:
        read(file)
    assert str(raised.value).startswith(f"{file} is truncated or malformed {fault}")
    assert "the last whole page is 'First'; fetch the dump again." in str(raised.value)
    assert str(raised.value).count("\n") == 0


def test_a_damaged_packed_dump_names_the_byte_and_the_last_whole_page(tmp_path: Path) -> None:
    xml, multistream = repeated(dump(page("First", "one " * 20_000)), 15)
    for name, data, reason in [
        ("cut.bz2", multistream[:-200], "Compressed file ended"),
        ("cut.gz", gzip.compress(xml)[:-200], "Compressed file ended"),
    ]:
        file = write(tmp_path / name, data)
        with pytest.raises(DataError) as raised:
            read(file)
        place, _, rest = str(raised.value).partition(" of the packed file ")
        assert place.startswith(f"{file} is truncated or malformed near byte ")
        byte = int(place.rsplit(" ", 1)[1].replace(",", ""))
        assert len(data) - 8192 <= byte <= len(data)
        assert reason in rest and "the last whole page is 'First'" in rest
    packed = bytearray(bz2.compress(xml))  # in two blocks; the fault may show first in the text or in the checksum
    packed[-100] ^= 255
    with pytest.raises(DataError, match=r"is truncated or malformed .*the last whole page is 'First'"):
        read(write(tmp_path / "hurt.bz2", bytes(packed)))


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "is empty"),
        (b"\n \n", "is not XML, so no MediaWiki dump (no element found)"),
        (b'{"id": 1, "title": "a"}\n', "is not XML, so no MediaWiki dump (not well-formed"),
        (b"PAR1\x15\x04", "is not XML, so no MediaWiki dump (not well-formed"),
        (b"7z\xbc\xaf\x27\x1c\x00\x04", "is not XML, so no MediaWiki dump (not well-formed"),
        (b"<!DOCTYPE html>\n<html><body>Not found</body></html>", "its root element is <html>, not <mediawiki>"),
        (b"<feed><doc><title>A</title></doc></feed>", "its root element is <feed>, not <mediawiki>"),
        (b"<mediawiki>\nnothing but text", "at line 2, column 16 (no element found); no page before it is whole"),
        (b'<?xml version="1.0" encoding="klingon"?>\n<mediawiki/>', "is not readable XML (unknown encoding"),
        (b"<mediawiki>\n \xff</mediawiki>", "at line 2, column 1 (not well-formed"),
    ],
)
def test_a_file_that_is_no_dump_is_refused_in_one_sentence(tmp_path: Path, data: bytes, fault: str) -> None:
    file = write(tmp_path / "file", data)
    with pytest.raises(DataError) as raised:
        read(file)
    assert str(raised.value).startswith(f"{file} ") and fault in str(raised.value)
    with pytest.raises(DataError, match="does not exist"):
        read(tmp_path / "absent")


def test_past_pages_are_let_go(tmp_path: Path) -> None:
    """mwxml alone keeps an emptied element of each page: some 3 GB for the English Wikipedia."""
    redirects = page("R", "#REDIRECT [[A]]", redirect="A") * 1000
    reader = DumpReader(RawFile(write(tmp_path / "d.xml", dump(redirects, page("A", "a")).encode())))
    (article,) = (sum(isinstance(o, Element) for o in gc.get_objects()) for _ in reader.articles())
    assert article < 100
