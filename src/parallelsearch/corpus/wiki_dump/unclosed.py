"""How much work the unclosed marks of a page make for a parser that tries each of them to the end of the page.

mwparserfromhell gives a mark up only where the text ends, and begins again behind it: its time grows with the square of
their number, and 32 kB of `{{a|` take over half a minute. What is counted here is the way of all such tries, in
characters, in one pass: a limit on it is the same on every machine.
"""

from __future__ import annotations

import re
from collections import Counter

from mwparserfromhell.definitions import is_single

MOST_WORK = 10_000_000  # characters; of templates, the slowest, 3 s
_MARK = re.compile(
    r"(?P<open>\{{2,}|\[\[|\[(?=[A-Za-z]+:|//))|(?P<close>\}{2,}|\]\]|\])"
    r"|^[ \t:*#;]*(?:(?P<table>\{\|)|(?P<endtable>\|\}(?!\})))|^(?P<heading>=+)(?!.*=[ \t]*$)"
    r"|<(?P<tag>[A-Za-z]\w*)(?:(?=(?P<rest>[^<>]*>))|)|</(?P<endtag>[A-Za-z]\w*)",
    re.MULTILINE,
)
_OPEN_QUOTE = re.compile(r"""=\s*(?:"[^"]*|'[^']*)>$""")
_OPENED_BY = {"]]": "[[", "]": "["}
_ARGUMENT, _TEMPLATE, _TABLE = "{{{", "{{", "{|"


class TooMuchUnclosed(Exception):
    """A page that the parser would need too long for."""


def check_unclosed(markup: str) -> None:
    """Raises TooMuchUnclosed for a page whose `unclosed_work` is above MOST_WORK."""
    if unclosed_work(markup) > MOST_WORK:
        raise TooMuchUnclosed


def unclosed_work(markup: str) -> int:
    """Characters from each unclosed template, link, table and tag to the end of `markup`, all together."""
    page = _Marks(len(markup))
    for mark in _MARK.finditer(markup):
        start, opens, closes = mark.start(), mark["open"], mark["close"]
        if opens:
            for brace in range(0, len(opens) - 3, 2):  # of five and more
                page.open(_TEMPLATE, start + brace)
            page.open(opens if len(opens) < 3 else _ARGUMENT if len(opens) % 2 else _TEMPLATE, start)
        elif closes and closes[0] == "}":
            page.close_braces(len(closes))
        elif closes:
            page.close(_OPENED_BY[closes])
        elif mark["table"]:
            page.open(_TABLE, start)
        elif mark["endtable"]:
            page.close(_TABLE)
        elif mark["endtag"]:
            page.close(mark["endtag"].lower())
        elif mark["heading"] or not mark["rest"] or _OPEN_QUOTE.search(mark["rest"]):
            page.work += len(markup) - start
        elif not mark["rest"].endswith("/>") and not is_single(mark["tag"]):
            page.open(mark["tag"].lower(), start)
    return page.work + sum(len(markup) - start for _, start in page.opened)


class _Marks:
    """The marks that are open at a place of a page, and the work of those that are known to stay so."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.work = 0
        self.opened: list[tuple[str, int]] = []
        self._waiting: Counter[str] = Counter()  # kinds in `opened`

    def open(self, kind: str, start: int) -> None:
        self.opened.append((kind, start))
        self._waiting[kind] += 1

    def close(self, *kinds: str) -> str:
        """Closes the innermost of `kinds`, which is returned; what is open inside of it stays so. '' without one."""
        if not any(self._waiting[kind] for kind in kinds):
            return ""
        while True:
            kind, start = self.opened.pop()
            self._waiting[kind] -= 1
            if kind in kinds:
                return kind
            self.work += self.length - start

    def close_braces(self, number: int) -> None:
        while number >= 2:
            kinds = (_ARGUMENT, _TEMPLATE) if number >= 3 else (_TEMPLATE,)
            closed = self.close(*kinds)
            if not closed:
                return
            number -= len(closed)
