"""Clean-up of text; the quoted examples are rows of TriviaQA, HotpotQA and NQ."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallelsearch.questions.text import clean, unescape, without_cell_quotes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("George VI\n", "George VI"),
        ('"What philosopher said ""God is dead""?"', 'What philosopher said "God is dead"?'),
        ('"Michael Jackson\'s ""Thriller"""', 'Michael Jackson\'s "Thriller"'),
        ('"Fix You"', '"Fix You"'),
        ('as a sequel to "", which aired from 2005 to 2008? ', 'as a sequel to "", which aired from 2005 to 2008?'),
        ('""Foo" and "Bar""', '""Foo" and "Bar""'),
        ("Tom &amp; Jerry", "Tom & Jerry"),
        ("Dungeons &#38; Dragons", "Dungeons & Dragons"),
        ("AT&T, ?a=1&region=2, Q&A", "AT&T, ?a=1&region=2, Q&A"),
        ("&nbsp;", ""),
        ("the  newcomers", "the  newcomers"),
    ],
)
def test_clean(text: str, expected: str) -> None:
    assert clean(text) == expected


@given(st.text(alphabet='ab ",').filter(lambda text: '"' in text.strip('"')))
def test_what_the_csv_writer_quotes_is_undone(text: str) -> None:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="").writerow([text])
    assert without_cell_quotes(stream.getvalue()) == text


@given(st.text(alphabet=st.characters(exclude_characters="&")))
def test_text_without_ampersand_has_no_entities(text: str) -> None:
    assert unescape(text) == text
