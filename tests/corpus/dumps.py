"""Dumps for tests: made by hand, and the real ones beside the checkout repeated."""

from __future__ import annotations

import bz2
from html import escape
from pathlib import Path

SITEINFO = (
    '<siteinfo><namespaces><namespace key="0" /><namespace key="1">Talk</namespace>'
    '<namespace key="6">Datei</namespace><namespace key="14">Kategorie</namespace></namespaces></siteinfo>'
)


def page(
    title: str, text: str, *, ns: int | None = 0, redirect: str = "", model: str = "<model>wikitext</model>"
) -> str:
    """One page as MediaWiki exports it, a line an element."""
    lines = [
        "<page>",
        f"<title>{escape(title)}</title>",
        *([f"<ns>{ns}</ns>"] if ns is not None else []),
        "<id>1</id>",
        *([f'<redirect title="{redirect}" />'] if redirect else []),
        f"<revision><id>2</id><timestamp>2020-01-01T00:00:00Z</timestamp>{model}<text>{escape(text)}</text></revision>",
        "</page>",
    ]
    return "\n".join(lines) + "\n"


def dump(*pages: str, siteinfo: str = SITEINFO, declaration: str = "") -> str:
    return f"{declaration}<mediawiki>\n{siteinfo}\n{''.join(pages)}</mediawiki>\n"


def repeated(xml: str, times: int, extra: str = "") -> tuple[bytes, bytes]:
    """The pages of a dump (and `extra` ones) so many times in one <mediawiki>: as XML, and as multistream bzip2."""
    start, end = xml.index("<page>"), xml.rindex("</page>") + len("</page>")
    head, body, foot = xml[:start].encode(), (xml[start:end] + extra).encode(), xml[end:].encode()
    packed = bz2.compress(head) + bz2.compress(body, 1) * times + bz2.compress(foot)
    return head + body * times + foot, packed


def xml_of(file: Path) -> str:
    """The text of a dump file, its encoding told from its first bytes."""
    data = file.read_bytes()
    data = bz2.decompress(data) if data.startswith(b"BZh") else data
    return data.decode("utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8")
