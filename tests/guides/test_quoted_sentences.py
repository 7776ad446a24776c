"""What docs/troubleshooting.md and the guides quote as sentences of this project is what its source says."""

from __future__ import annotations

from pathlib import Path

import pytest
from follow import OWN_GUIDES
from quoted_sentences import ANY, messages, quotations, says

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "parallelsearch"
# Sentences that pydantic or Python say, which guides quote as well.
FOREIGN = ("input should be", "ModuleNotFoundError", "AttributeError")


@pytest.fixture(scope="module")
def said() -> list[str]:
    return messages(SOURCE)


@pytest.mark.parametrize("page", ["troubleshooting.md", *OWN_GUIDES])
def test_every_sentence_that_is_quoted_stands_in_the_source(page: str, said: list[str]) -> None:
    quoted = [text for text in quotations((ROOT / "docs" / page).read_text()) if not any(f in text for f in FOREIGN)]
    assert len(quoted) >= (55 if page == "troubleshooting.md" else 2)
    assert [text for text in quoted if not any(says(message, text) for message in said)] == []


def test_a_sentence_that_no_longer_stands_there_is_found(said: list[str]) -> None:
    assert any(says(message, "… is being written by …; …") for message in said)
    assert not any(says(message, "… is being rewritten by …; …") for message in said)
    assert not any(says(message, "the index has gone stale since …; build it again") for message in said)


@pytest.mark.parametrize(
    ("quotation", "expected"),
    [
        ("field 'x' is missing (the row has: a)", True),
        ("field '…' is missing (the row has: …)", True),
        ("is missing (the row has", True),
        ("field 'x' is empty (the row has: a)", False),
        ("field 'x' is missing (the line has: a)", False),
        ("something else altogether is missing here", False),
    ],
)
def test_a_quotation_is_part_of_a_message_with_any_values(quotation: str, expected: bool) -> None:
    assert says(f"field '{ANY}' is missing (the row has: {ANY})", quotation) is expected


@pytest.mark.parametrize(
    "sentence",
    ["LockException", "IncompleteFilesException", "MissingInputException", "Nothing to be done"],
)
def test_what_snakemake_is_quoted_with_stands_in_it(sentence: str) -> None:
    import snakemake

    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    assert f"`{sentence}`" in page
    sources = Path(snakemake.__file__).parent.rglob("*.py")
    assert any(sentence in path.read_text(encoding="utf-8") for path in sources)
