"""Text of a page that is no markup, whatever it looks like: set aside before the page is read, put back at the end."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field

# What begins first holds whatever stands in it, as MediaWiki reads a page. Of these tags nothing inside is markup, too;
# those but nowiki and pre are left out later, with all they hold.
_BEGIN = re.compile(
    r"<!--|<nowiki\s*/>"
    r"|<(?P<tag>nowiki|pre|math|chem|ce|score|syntaxhighlight|source|timeline|graph|templatedata)\b(?:[^<>]*[^<>/])?>",
    re.IGNORECASE,
)
_PLACE = re.compile("\x04(\\d+)\x05")  # no XML document can hold these characters
_ENTITY = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|\w+);")


@dataclass(slots=True)
class Verbatim:
    """The verbatim texts of one page."""

    texts: list[str] = field(default_factory=list)

    def set_aside(self, markup: str) -> str:
        """`markup` without comments, a placeholder for each text in <nowiki> or <pre>."""
        markup = markup.replace("\x04", "")
        parts: list[str] = []
        unclosed: set[str] = set()  # tags whose end does not come any more
        place = 0
        while begin := _BEGIN.search(markup, place):
            tag = (begin["tag"] or "").lower()
            parts.append(markup[place : begin.start()])
            place = begin.end()
            if begin[0] == "<!--":
                close = markup.find("-->", place)
                place = close + 3 if close >= 0 else len(markup)
            elif not tag:
                parts.append(self._kept(""))
            else:
                end = None if tag in unclosed else re.compile(rf"</{tag}\s*>", re.IGNORECASE).search(markup, place)
                if end is None:
                    unclosed.add(tag)
                    parts.append(begin[0])
                    continue
                inner = markup[place : end.start()]
                parts.append(self._of(tag, inner) or markup[begin.start() : end.end()])
                place = end.end()
        return "".join([*parts, markup[place:]])

    def put_back(self, text: str) -> str:
        """`text` with the texts in their places, entities as their characters."""
        return _PLACE.sub(lambda place: self.texts[int(place[1])], text)

    def _of(self, tag: str, inner: str) -> str:
        if tag == "nowiki":
            return self._kept(inner)
        return f"\n{self._kept(inner)}\n" if tag == "pre" else ""

    def _kept(self, text: str) -> str:
        self.texts.append(unescaped(text))
        return f"\x04{len(self.texts) - 1}\x05"


def unescaped(text: str) -> str:
    """`text` with its entities as their characters."""
    return _ENTITY.sub(lambda match: html.unescape(match[0]), text)
