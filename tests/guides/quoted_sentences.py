"""Whether a sentence that a page quotes is one that the source can say.

A message of the source is a string, or an f-string whose values can be anything. A quotation is a part of it with
example values, or with … for them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

ANY = "\0"  # whatever a value or … stands for
SMALLEST_SHARE = 0.5  # of a quotation that has to stand in the message itself, not in its values
SMALLEST_LENGTH = 12


def messages(source: Path) -> list[str]:
    """Every string of the package but docstrings, with ANY for the values of f-strings."""
    return [text for path in sorted(source.rglob("*.py")) for text in _strings(ast.parse(path.read_text("utf-8")))]


def _strings(tree: ast.AST) -> Iterator[str]:
    inner: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            inner.add(id(node.value))  # a docstring
        if isinstance(node, ast.JoinedStr):
            inner |= {id(part) for part in ast.walk(node) if part is not node and not isinstance(part, ast.JoinedStr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else ANY for part in node.values)  # type: ignore[misc]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value


def says(message: str, quotation: str) -> bool:
    """True when `quotation` is a part of `message`, most of it word for word."""
    quoted = quotation.replace("…", ANY)
    if not _words(quoted) & _words(message) and (_words(quoted) or not _words(quoted, 1) <= _words(message, 1)):
        return False  # which saves most of the comparisons below
    # Position in the message -> most characters of the quotation that stood there word for word.
    reached = _skipped(dict.fromkeys(range(len(message) + 1), 0), message)
    for character in quoted:
        if character == ANY:
            least = min(reached)
            running, after = 0, {}
            for place in range(least, len(message) + 1):
                running = max(running, reached.get(place, 0))
                after[place] = running
        else:
            after = {}
            for place, count in reached.items():
                if place < len(message) and message[place] == ANY:
                    after[place] = max(after.get(place, 0), count)
                elif place < len(message) and message[place] == character:
                    after[place + 1] = max(after.get(place + 1, 0), count + 1)
        if not after:
            return False
        reached = _skipped(after, message)
    literal = max(reached.values())
    length = len(quoted.replace(ANY, ""))
    return literal >= max(SMALLEST_LENGTH, SMALLEST_SHARE * length)


def _skipped(reached: dict[int, int], message: str) -> dict[int, int]:
    """`reached`, and the places behind values that are empty."""
    for place in sorted(reached):
        while place < len(message) and message[place] == ANY:
            reached[place + 1] = max(reached.get(place + 1, 0), reached[place])
            place += 1
    return reached


def _words(text: str, together: int = 2) -> set[tuple[str, ...]]:
    """So many neighbouring words, without a value between them."""
    parts = [re.findall(r"\w+", part) for part in text.split(ANY)]
    return {tuple(words[at : at + together]) for words in parts for at in range(len(words) - together + 1)}


def quotations(page: str, headers: Sequence[str] = ("sentence", "line")) -> list[str]:
    """What the first column of a page's tables quotes, where its header is one of `headers`."""
    from markdown_it import MarkdownIt

    found: list[str] = []
    header, column, foreign = "", 0, False
    for token in MarkdownIt("commonmark").enable("table").parse(page):
        if token.type == "table_open":
            header = ""
        elif token.type == "tr_open":
            column = 0
        elif token.type in ("th_close", "td_close"):
            column += 1
        elif token.type == "heading_open":
            foreign = False
        elif token.type == "inline" and token.level == 1:
            foreign = "Snakemake and Slurm" in token.content or foreign
        elif token.type == "inline" and column == 0:
            if not header:
                header = token.content
            elif header in headers and not foreign:
                found += [child.content for child in token.children or [] if child.type == "code_inline"]
    return found
