"""The articles of a dump, in its order; memory stays at one page.

mwxml knows the export format. Around it stands only what it lacks: its own reader decodes every file as UTF-8 with
replacement characters (here the XML parser sees the bytes, and with them the encoding), its Dump refuses a file without
<siteinfo> and loses the place of a fault in the first line, and it never lets go of the emptied elements of past pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from xml.etree.ElementTree import ParseError

from mwxml import Page, Revision, SiteInfo
from mwxml.element_iterator import ElementIterator, EventPointer
from mwxml.errors import MalformedXML

from parallelsearch.corpus.raw_file import BROKEN_PACKING, RawFile, Unpacked, open_bytes
from parallelsearch.errors import DataError

MAIN_NAMESPACE = 0
# Beside the names that <siteinfo> gives in the wiki's own language: a dump may lack it, and all wikis understand these.
ENGLISH_NAMES = {-2: "Media", 6: "File", 14: "Category"}
FORMER_NAMES = ("Image",)  # of File
FETCH_AGAIN = "fetch the dump again"
NAME_A_DUMP = "name a file such as pages-articles.xml.bz2"
_REDIRECT = re.compile(r"\s*#\s*redirect\b", re.IGNORECASE)  # dumps before export-0.4 mark redirects by nothing else
_ENCODING = (LookupError, ValueError)  # an encoding that the XML parser does not know
_LAYOUT = (MalformedXML, ValueError, TypeError, AttributeError, AssertionError)  # what mwxml raises on a strange page


@dataclass(frozen=True, slots=True)
class Article:
    """A page of the main namespace that is no redirect: its title and the markup of its latest revision."""

    title: str
    markup: str


@dataclass(slots=True)
class DumpReader:
    """Reads the articles of `raw`, and the names of the namespaces whose links are no text.

    Pages are counted in `raw.read`, those that are left out in `raw.dropped`. `last_title` is the last whole page.
    """

    raw: RawFile
    hidden_namespaces: frozenset[str] = frozenset(map(str.casefold, (*ENGLISH_NAMES.values(), *FORMER_NAMES)))
    last_title: str = ""

    def articles(self) -> Iterator[Article]:
        """The articles in the order of the dump.

        Raises DataError, with line and column (or byte, in a damaged packed stream) and the last whole page, for a
        file that is no dump, breaks off or is malformed.
        """
        with open_bytes(self.raw) as stream:
            try:
                yield from self._articles(stream)
            except ParseError as error:
                raise self._malformed(error) from None
            except BROKEN_PACKING as error:
                raise self._refusal(f"near byte {self.raw.position:,} of the packed file ({error})") from None

    def _articles(self, stream: Unpacked) -> Iterator[Article]:
        try:
            # Of a packed stream that breaks, read1 hands over all that is whole; read would lose up to 16 KiB.
            pointer = EventPointer.from_file(SimpleNamespace(read=stream.read1))
            _, element = next(pointer)
        except ParseError as error:
            reason = error.msg.split(":")[0]
            raise DataError(f"{self.raw.path} is not XML, so no MediaWiki dump ({reason}); {NAME_A_DUMP}.") from None
        except _ENCODING as error:
            raise DataError(f"{self.raw.path} is not readable XML ({error}); convert it to UTF-8.") from None
        root = ElementIterator(element, pointer)
        if root.tag != "mediawiki":
            raise DataError(
                f"{self.raw.path} is no MediaWiki dump: its root element is <{root.tag}>, not <mediawiki>;"
                f" {NAME_A_DUMP}."
            )
        names = None
        for element in root:
            try:
                if element.tag == "siteinfo":
                    names = self._learn(SiteInfo.from_element(element))
                elif element.tag == "page":
                    page = Page.from_element(element, names)
                    revision = None
                    for revision in page:  # noqa: B007  the last one stands
                        pass
                    article = self._article(page, revision)
                    self.last_title = page.title
                    if article is not None:
                        yield article
            except _LAYOUT as error:
                raise self._refusal(f"in the page after it, which MediaWiki would not export so ({error})") from None
            root.element.clear()

    def _learn(self, site: SiteInfo) -> dict[str, object] | None:
        if site.namespaces is None:
            return None
        hidden = {namespace.name.casefold() for namespace in site.namespaces if namespace.id in ENGLISH_NAMES}
        self.hidden_namespaces |= hidden - {""}
        return {namespace.name: namespace for namespace in site.namespaces}

    def _article(self, page: Page, revision: Revision | None) -> Article | None:
        content = revision.slots.contents.get("main") if revision is not None else None
        markup = content.text if content is not None and content.text else ""
        reason = None
        if page.namespace != MAIN_NAMESPACE:
            reason = "other namespace"
        elif page.redirect is not None or _REDIRECT.match(markup):
            reason = "redirect"
        elif content is not None and content.model not in (None, "wikitext"):
            reason = "not wikitext"
        self.raw.read += 1
        if reason is None:
            return Article(page.title, markup)
        self.raw.dropped[reason] += 1
        return None

    def _malformed(self, error: ParseError) -> DataError:
        line, column = error.position
        return self._refusal(f"at line {line:,}, column {column} ({error.msg.split(':')[0]})")

    def _refusal(self, fault: str) -> DataError:
        last = f"the last whole page is '{self.last_title}'" if self.last_title else "no page before it is whole"
        return DataError(f"{self.raw.path} is truncated or malformed {fault}; {last}; {FETCH_AGAIN}.")
