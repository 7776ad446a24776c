"""Wikitext -> the sentences a reader sees.

mwparserfromhell finds the structure. Kept are running text, the text of links, tags and formatting; left out are
templates, tables, references, files, categories, interlanguage links, headings, lists, comments and formulas, as in the
preprocessing of DrQA that DPR's passages come from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import mwparserfromhell
from mwparserfromhell.nodes import ExternalLink, Heading, HTMLEntity, Node, Tag, Template, Text, Wikilink
from mwparserfromhell.wikicode import Wikicode

from parallelsearch.corpus.wiki_dump.unclosed import check_unclosed
from parallelsearch.corpus.wiki_dump.verbatim import Verbatim, unescaped

# Tags that go with all they hold.
DROPPED_TAGS = frozenset(
    [
        *(
            "ref",
            "references",
            "table",
            "tr",
            "td",
            "th",
            "ul",
            "ol",
            "dl",
            "style",
            "script",
            "includeonly",
            "section",
        ),
        *("gallery", "imagemap", "timeline", "graph", "mapframe", "maplink", "indicator", "inputbox", "categorytree"),
        *("rt", "rp", "rtc"),  # readings above words, which would stand in the middle of them
        *("math", "chem", "ce", "score", "hiero", "syntaxhighlight", "source", "templatedata", "templatestyles"),
    ]
)
BREAKING_TAGS = frozenset(["br", "p", "div", "blockquote", "poem", "center", "hr", "pre"])
# Links to files are known by their ending too: a dump does not say all names that its wiki has for the namespace.
_FILE = re.compile(
    r"[^:|]+:.*\.(?:jpe?g|png|gif|svg|tiff?|webp|xcf|pdf|djvu|og[gvax]|opus|flac|mp3|wav|midi?|webm|mp4|stl)\s*$", re.I
)
_PREFIXED = re.compile(r"[^\W\d_][\w \-]*:\S")  # a namespace or another wiki; 'Star Trek: First Contact' is neither
_HIDE, _SHOW = "\x02", "\x03"  # around the text of a prefixed link; no XML document can hold these characters
_ONLY_PREFIXED_LINKS = re.compile(f"(?:\\s*{_HIDE}[^{_SHOW}]*{_SHOW})+\\s*")
_RAISED = "\x06"  # before a superscript with digits: an exponent behind a number or a name, else 14 of carbon-14, say
_EXPONENT = re.compile(f"(?<=[\\w)\\]]){_RAISED}")
_FUNCTIONS: dict[str, Callable[[str], str]] = {
    "formatnum": str,  # the digits as they are written; how they are grouped is the wiki's own
    "lc": str.lower,
    "uc": str.upper,
    "lcfirst": lambda text: text[:1].lower() + text[1:],
    "ucfirst": lambda text: text[:1].upper() + text[1:],
}
_LIST_MARKS = ("*", "#", ":", ";")

# What is left of markup that its author never closed.
_REFERENCE = re.compile(r"<ref\b[^<>]*/>|<ref\b[^<>]*>(?:(?!<ref\b).)*?</ref\s*>", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"</?[A-Za-z][^<>\n]*>|</?ref\b", re.IGNORECASE)
_INNERMOST_TEMPLATE = re.compile(r"\{\{[^{}]*\}\}")
_INNERMOST_TABLE = re.compile(r"\{\|(?:(?!\{\||\|\}).)*\|\}", re.DOTALL)
_TABLE_LINES = re.compile(r"^[ \t:]*(?:\{\||\{\{|\|).*(?:\n[ \t]*[|!].*)*", re.MULTILINE)
_OPEN_LINK = re.compile(r"\[\[(?:[^\[\]\n|]*\|)*")
_MARKS = re.compile(r"\[\[|\]\]|\{\{+|\}\}+|\{\||\|\}|'{2,}|<!--|</?ref\b", re.IGNORECASE)
_SWITCH = re.compile(r"__[^\W\d_]+(?:_[^\W\d_]+)*__")  # __NOTOC__, in the wiki's own language
_QUOTES = re.compile(r"'{2,}")

_EMPTY_BRACKETS = re.compile(r"\s*[(（][\s,;:，；：、]*[)）]")  # what a template leaves that stood in them
_OPENING = re.compile(r"([(（])[\s,;，；、]+")
_CLOSING = re.compile(r"(?<![\s,;，；、])[\s,;，；、]+([)）])")


def plain_text(markup: str, hidden_namespaces: frozenset[str]) -> str:
    """The text of a page, its paragraphs joined, with single spaces; '' when it has none.

    Links into `hidden_namespaces` (case-folded names of files and categories) are left out. Raises
    mwparserfromhell.parser.ParserError where that library fails, and TooMuchUnclosed where it would not end in seconds.
    """
    verbatim = Verbatim()
    markup = verbatim.set_aside(markup)
    check_unclosed(markup)
    code = mwparserfromhell.parse(markup, skip_style_tags=True)
    text = "".join(_visible(code, hidden_namespaces))
    text = _EXPONENT.sub("^", text).replace(_RAISED, "")
    text = _without_remains(text)
    lines = (line.strip() for line in text.split("\n"))
    kept = (line for line in lines if not line.startswith(_LIST_MARKS) and not _ONLY_PREFIXED_LINKS.fullmatch(line))
    text = " ".join(_without_quotes(line) for line in kept).replace(_HIDE, "").replace(_SHOW, "")
    text = _until_none_is_left(_MARKS, text)
    text = " ".join(unescaped(text).split())
    text = _CLOSING.sub(r"\1", _OPENING.sub(r"\1", _EMPTY_BRACKETS.sub("", text)))
    return " ".join(verbatim.put_back(text).split())


def _visible(code: Wikicode, hidden: frozenset[str]) -> Iterator[str]:
    for node in code.nodes:
        match node:
            case Text():
                yield node.value
            case Wikilink():
                yield from _link(node, hidden)
            case Tag():
                yield from _tag(node, hidden)
            case ExternalLink() if node.title is not None:
                yield from _visible(node.title, hidden)
            case HTMLEntity():
                yield str(node)
            case Heading():
                yield "\n"
            case Template():
                yield _function(node, hidden)
            case Node():  # arguments of templates, comments, bare addresses
                pass


def _link(node: Wikilink, hidden: frozenset[str]) -> Iterator[str]:
    title = str(node.title).strip()
    prefix, colon, _ = title.partition(":")
    if colon and (prefix.strip().casefold() in hidden or _FILE.match(title)):
        return
    prefixed = _PREFIXED.match(title)
    if prefixed:
        yield _HIDE
    if node.text is not None:
        yield from _visible(node.text, hidden)
    else:
        yield title.removeprefix(":")
    if prefixed:
        yield _SHOW


def _tag(node: Tag, hidden: frozenset[str]) -> Iterator[str]:
    name = str(node.tag).strip().lower()
    if node.wiki_markup in _LIST_MARKS:
        yield node.wiki_markup
    elif name not in DROPPED_TAGS:
        around = "\n" if name in BREAKING_TAGS else ""
        inner = "".join(_visible(node.contents, hidden)) if node.contents is not None else ""
        raised = _RAISED if name == "sup" and any(map(str.isdecimal, unescaped(inner))) else ""
        yield f"{around}{raised}{inner}{around}"


def _function(node: Template, hidden: frozenset[str]) -> str:
    """What a function of MediaWiki itself shows of its argument; '' for a template, whose text another page has."""
    name, colon, argument = "".join(_visible(node.name, hidden)).partition(":")
    show = _FUNCTIONS.get(name.strip().lower())
    return show(argument.strip()) if show and colon else ""


def _without_remains(text: str) -> str:
    text = _REFERENCE.sub("", text)
    for innermost in (_INNERMOST_TEMPLATE, _INNERMOST_TABLE):
        text = _until_none_is_left(innermost, text)
    text = _TAG.sub("", text)
    text = _TABLE_LINES.sub("", text)
    text = _OPEN_LINK.sub("", text)
    return _SWITCH.sub(lambda match: "" if match[0] == match[0].upper() else match[0], text)


def _until_none_is_left(pattern: re.Pattern[str], text: str) -> str:
    """Removes matches, also those that come about when what stood between their parts is removed."""
    count = 1
    while count:
        text, count = pattern.subn("", text)
    return text


def _without_quotes(line: str) -> str:
    """The line without the marks of italic ('') and bold ('''); as in MediaWiki, one of an odd number is an apostrophe.

    ''Newsweek'''s is italic with a genitive: where italic and bold marks are both odd in number, a bold mark after a
    letter is an apostrophe and an italic mark.
    """
    marks = [len(mark) for mark in _QUOTES.findall(line)]
    if not marks:
        return line
    italic, bold = (sum(size in sizes for size in marks) for sizes in ((2, 5), (3, 4, 5)))
    if italic % 2 and bold % 2:
        line = re.sub(r"(?<=\w)'''(?!')", "'", line, count=1)
    return _QUOTES.sub(lambda match: "" if len(match[0]) in (2, 3, 5) else "'", line)
