"""Real dumps of five languages: their pages are counted, their passages are text, memory and faults are bounded."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from dumps import repeated, xml_of

from parallelsearch.corpus.passages import PASSAGES, Corpus, build_corpus
from parallelsearch.corpus.words import count_words
from parallelsearch.errors import DataError
from parallelsearch.files import MANIFEST, read_json, sha256

ENGLISH = "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
WHOLE = (
    "dbpedia-minidump-ar.xml.bz2",
    "dbpedia-minidump-de.xml.bz2",
    "dbpedia-minidump-en.xml.bz2",
    "dbpedia-minidump-ja.xml.bz2",
    ENGLISH,
    "gensim-bgwiki-utf16.xml.bz2",
    "gensim-enwiki-table-markup.xml.bz2",
    "mwxml-dump.xml",
)
LIST_ONLY = "List of anthropologists"  # a page of the English dump without a sentence
TRUNCATED = "wikiextractor-viwiki-truncated-test.xml"


@pytest.fixture(scope="module")
def dumps(shared_data: Path) -> Path:
    return shared_data / "wiki_dumps"


@pytest.fixture(scope="module")
def built(dumps: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Corpus]:
    """The corpus of every dump that is whole, made with two workers."""
    out = tmp_path_factory.mktemp("corpora")
    for name in WHOLE:
        build_corpus("mediawiki", dumps / name, out / name, workers=2)
    return {name: Corpus(out / name) for name in WHOLE}


def counted_by_hand(xml: str) -> dict[str, Any]:
    """Pages by what plain regular expressions see of them."""
    pages = re.findall(r"<page>.*?</page>", xml, re.DOTALL)
    main = [text for text in pages if "<ns>0</ns>" in text]
    titles = [re.findall(r"<title>(.*?)</title>", text)[0] for text in main if "<redirect" not in text]
    dropped = {"other namespace": len(pages) - len(main), "redirect": len(main) - len(titles)}
    if LIST_ONLY in titles:
        titles.remove(LIST_ONLY)
        dropped["no text"] = 1
    return {"read": len(pages), "dropped": {k: v for k, v in dropped.items() if v}, "titles": titles}


def test_all_files_are_tested(dumps: Path) -> None:
    assert {path.name for path in dumps.iterdir()} == {*WHOLE, TRUNCATED}


@pytest.mark.parametrize("name", WHOLE)
def test_pages_are_counted_and_titles_kept_in_order(dumps: Path, built: dict[str, Corpus], name: str) -> None:
    expected = counted_by_hand(xml_of(dumps / name))
    manifest = built[name].manifest
    assert manifest["records_read"] == expected["read"]
    assert manifest["records_dropped"] == expected["dropped"]
    assert manifest["records_used"] == len(expected["titles"])
    found = [passage.title for batch in built[name].rows(0, len(built[name])) for passage in batch]
    titles = list(dict.fromkeys(found))
    assert titles == [title.replace("&amp;", "&").replace("&quot;", '"') for title in dict.fromkeys(expected["titles"])]


@pytest.mark.parametrize("name", WHOLE)
def test_passages_have_100_words_and_no_markup(built: dict[str, Corpus], name: str) -> None:
    passages = [passage for batch in built[name].rows(0, len(built[name])) for passage in batch]
    markup = re.compile(r"\[\[|\]\]|\{\{|\}\}|\{\||\|\}|</?ref|<!--|''|==|\|\||&\w+;|https?://|__\w|</?[a-z]+\s*/?>")
    assert not [passage.text for passage in passages if markup.search(passage.text)]
    for passage, following in zip(passages, [*passages[1:], None], strict=True):
        words = count_words(passage.text)
        if following is not None and following.title == passage.title:
            assert words == 100 or name == "dbpedia-minidump-ar.xml.bz2"  # has two pages of the same title in a row
        assert 1 <= words <= 100
    mean = sum(count_words(passage.text) for passage in passages) / len(passages)
    assert built[name].manifest["words_per_passage"] == pytest.approx(mean, abs=0.01)


FIRST_PASSAGES = {  # read off the markup by hand
    ("mwxml-dump.xml", "Foo"): "Revision 2 text",
    (ENGLISH, "Albedo"): (
        'Albedo or reflection coefficient, derived from Latin albedo "whiteness" (or reflected sunlight) in turn from'
        ' albus "white", is the diffuse reflectivity or reflecting power of a surface. It is the ratio'
    ),
    ("dbpedia-minidump-en.xml.bz2", "? (film)"): (
        "? (also written Tanda Tanya, meaning Question Mark) is a 2011 Indonesian drama film directed by Hanung"
        " Bramantyo. It stars Revalina Sayuthi Temat, Reza Rahadian, Agus Kuncoro, Endhita, Rio Dewanto,"
    ),
    ("gensim-bgwiki-utf16.xml.bz2", "Григориански календар"): (
        "Григорианският календар (понякога наричан и Грегориански календар, „нов стил“) е съвременният международно"
        " признат светски календар, на който се основава и международният стандарт ISO 8601. Григорианският календар"
    ),
    ("gensim-enwiki-table-markup.xml.bz2", "Constructive vote of no confidence"): (
        "The constructive vote of no confidence (in German: konstruktives Misstrauensvotum, in Spanish: moción de"
        " censura constructiva) is a variation on the motion of no confidence"
    ),
}


@pytest.mark.parametrize(("name", "title"), FIRST_PASSAGES)
def test_first_passages(built: dict[str, Corpus], name: str, title: str) -> None:
    batches = built[name].rows(0, len(built[name]))
    first = next(passage.text for batch in batches for passage in batch if passage.title == title)
    assert first.startswith(FIRST_PASSAGES[name, title])


def test_the_truncated_dump_is_one_error_and_leaves_nothing(dumps: Path, tmp_path: Path) -> None:
    xml = xml_of(dumps / TRUNCATED)
    last = re.findall(r"<title>(.*?)</title>", xml)[-1]
    with pytest.raises(DataError) as raised:
        build_corpus("mediawiki", dumps / TRUNCATED, tmp_path / "corpus")
    lines = xml.count("\n") + (not xml.endswith("\n"))
    place = re.search(r"at line ([\d,]+), column", str(raised.value))
    assert place and int(place[1].replace(",", "")) in (lines, lines + 1)
    assert f"the last whole page is '{last}'" in str(raised.value)
    assert list((tmp_path / "corpus").iterdir()) == []


def test_any_number_of_workers_gives_the_same_bytes(dumps: Path, built: dict[str, Corpus], tmp_path: Path) -> None:
    name = "gensim-enwiki-table-markup.xml.bz2"
    for workers in (1, 3):
        build_corpus("mediawiki", dumps / name, tmp_path / str(workers), workers=workers)
        assert sha256(tmp_path / str(workers) / PASSAGES) == sha256(built[name].path)


BUILD = """
import sys
from pathlib import Path
from parallelsearch.corpus.passages import build_corpus
build_corpus("mediawiki", Path(sys.argv[1]), Path(sys.argv[2]), workers=2)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def start(file: Path, out: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", BUILD, str(file), str(out)], stdout=subprocess.PIPE, text=True)


def peak_memory(file: Path, out: Path) -> int:
    """Peak resident memory of the main process in kB (VmHWM; getrusage would begin with that of its parent)."""
    process = start(file, out)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return int(output.splitlines()[-1])


def test_memory_does_not_grow_with_the_dump(dumps: Path, tmp_path: Path) -> None:
    """Ten times the pages, 30 MB of XML; talk pages make up most of it, for they are read but need not be stripped."""
    xml = xml_of(dumps / "gensim-bgwiki-utf16.xml.bz2")
    german = xml_of(dumps / "dbpedia-minidump-de.xml.bz2")
    pages = "".join(re.findall(r"<page>.*?</page>", german, re.DOTALL))
    talk = pages.replace("<ns>0</ns>", "<ns>1</ns>") * 9
    files = {}
    for times in (1, 10):
        files[f"{times}.xml"], files[f"{times}.xml.bz2"] = repeated(xml, times, talk)
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    assert len(files["10.xml"]) > 30_000_000
    one, ten, packed = (peak_memory(tmp_path / n, tmp_path / f"{n}.out") for n in ("1.xml", "10.xml", "10.xml.bz2"))
    assert max(ten, packed) <= 1.2 * one
    rows = {name: read_json(tmp_path / f"{name}.out" / MANIFEST)["rows"] for name in ("1.xml", "10.xml", "10.xml.bz2")}
    assert rows["10.xml"] == rows["10.xml.bz2"] == 10 * rows["1.xml"]
    assert sha256(tmp_path / "10.xml.out" / PASSAGES) == sha256(tmp_path / "10.xml.bz2.out" / PASSAGES)


def test_a_killed_build_leaves_nothing_that_looks_complete(
    dumps: Path, built: dict[str, Corpus], tmp_path: Path
) -> None:
    name, out = "dbpedia-minidump-en.xml.bz2", tmp_path / "corpus"
    process = start(dumps / name, out)
    end = time.monotonic() + 60
    while not list(out.glob("*.partial")) and not list(out.glob(".*.partial")) and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.5)  # the workers start and strip
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert [path.suffix for path in out.iterdir()] == [".partial"]
    with pytest.raises(DataError, match="is missing"):
        Corpus(out)
    build_corpus("mediawiki", dumps / name, out, workers=2)
    assert sorted(path.name for path in out.iterdir()) == [MANIFEST, PASSAGES]
    assert sha256(out / PASSAGES) == sha256(built[name].path)
