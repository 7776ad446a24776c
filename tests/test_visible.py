"""Characters that steer a terminal or the direction of writing are written out; everything else stays as it is."""

from __future__ import annotations

import unicodedata

import pytest
from hostile import EVERY_TEXT, TEXTS
from hypothesis import given
from hypothesis import strategies as st

from parallelsearch import cli
from parallelsearch.errors import DataError
from parallelsearch.visible import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\x00b", r"a\x00b"),
        ("a\rb", r"a\rb"),
        ("\x9b2J", r"\x9b2J"),
        ("abc\u202edef", r"abc\u202edef"),
        ("\u2066x\u2069", r"\u2066x\u2069"),
        ("half \ud800", r"half \ud800"),
        ("tab\tand\nline stay", "tab\tand\nline stay"),
        ("Ærø, 東京, שלום, مرحبا, 👩‍🚀 – “x”", "Ærø, 東京, שלום, مرحبا, 👩‍🚀 – “x”"),
    ],
)
def test_what_steers_is_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text())
def test_nothing_that_steers_is_left_and_shown_text_is_shown_as_it_is(text: str) -> None:
    shown = visible(text)
    assert visible(shown) == shown
    kinds = {unicodedata.category(character) for character in shown} - {"Cf"}  # joiners of emoji and scripts stay
    assert not kinds & {"Cs", "Zl", "Zp"}
    assert all(character in "\t\n" for character in shown if unicodedata.category(character) == "Cc")
    assert not {unicodedata.bidirectional(character) for character in shown} & {
        "LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI",
    }  # fmt: skip


def test_an_error_of_the_program_prints_one_harmless_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["score", "no\x1b]0;owned\x07such\u202efile.jsonl", "--semantics", "paper"])
    said = capsys.readouterr().err
    assert r"no\x1b]0;owned\x07such\u202efile.jsonl" in said
    assert not set(said) & {"\x1b", "\x07", "\u202e"}


def test_the_text_of_every_error_is_shown() -> None:
    assert str(DataError(EVERY_TEXT)) == visible(EVERY_TEXT) and TEXTS["nul"] not in str(DataError(EVERY_TEXT))
