"""Clean-up of question, answer and title text: what a file format left behind is undone, wording is never touched."""

from __future__ import annotations

import html
import re

_ENTITY = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]*);")
_QUOTED_CELL = re.compile(r'"((?:[^"]|"")*)"')


def clean(text: str) -> str:
    """`text` without white space at its edges, quoting of a CSV cell and HTML entities; '' when nothing is left."""
    return unescape(without_cell_quotes(text.strip())).strip()


def unescape(text: str) -> str:
    """HTML entities as characters. Only entities closed by ';' count: 'AT&T' and '?a=1&region=2' stay as they are."""
    return _ENTITY.sub(lambda entity: html.unescape(entity.group()), text)


def without_cell_quotes(text: str) -> str:
    """Undoes CSV quoting left in a value: an outer pair of quotes around text whose inner quotes are all doubled.

    TriviaQA's copies hold such questions. Text in quotes without a doubled quote inside is a title or a quotation, not
    an artefact (a NQ answer is '"Fix You"'), and is returned unchanged.
    """
    cell = _QUOTED_CELL.fullmatch(text)
    if cell is None or '""' not in cell.group(1):
        return text
    return cell.group(1).replace('""', '"')
