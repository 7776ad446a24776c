"""The corpus source `mediawiki`: a dump -> (title, text) of its passages, the markup stripped by several processes."""

from __future__ import annotations

from collections.abc import Iterator

from mwparserfromhell.parser import ParserError

from parallelsearch.corpus.raw_file import RawFile
from parallelsearch.corpus.wiki_dump.pages import Article, DumpReader
from parallelsearch.corpus.wiki_dump.plain_text import plain_text
from parallelsearch.corpus.wiki_dump.unclosed import TooMuchUnclosed
from parallelsearch.corpus.wiki_dump.worker_pool import in_order
from parallelsearch.corpus.words import word_blocks
from parallelsearch.titles import page_title

BATCH_CHARACTERS = 200_000  # of markup
TitledText = tuple[str, str]
Batch = tuple[list[Article], frozenset[str]]


def read_mediawiki(raw: RawFile) -> Iterator[TitledText]:
    """Passages of 100 words of the articles of an XML dump, in the dump's order; the same for any number of workers.

    Pages are counted in `raw.read`; in `raw.dropped` those of another namespace, redirects, pages that are no wikitext,
    pages without text, and with their titles pages that mwparserfromhell cannot parse, or not in seconds.
    """
    reader = DumpReader(raw)
    for passages, without_text, unread in in_order(passages_of, _batches(reader), raw.workers, _label):
        if without_text:
            raw.dropped["no text"] += without_text
        for reason, title in unread:
            raw.drop(reason, title)
        yield from passages


def passages_of(batch: Batch) -> tuple[list[TitledText], int, list[tuple[str, str]]]:
    """The passages of some articles, how many have no text, and reason and title of each that was not read."""
    articles, hidden_namespaces = batch
    passages: list[TitledText] = []
    unread: list[tuple[str, str]] = []
    without_text = 0
    for article in articles:
        title = page_title(article.title)
        try:
            blocks = word_blocks(plain_text(article.markup, hidden_namespaces))
        except TooMuchUnclosed:
            unread.append(("too much unclosed markup", title))
            continue
        except ParserError:
            unread.append(("unparsable", title))
            continue
        without_text += not blocks
        passages.extend((title, block) for block in blocks)
    return passages, without_text, unread


def _batches(reader: DumpReader) -> Iterator[Batch]:
    articles: list[Article] = []
    characters = 0
    for article in reader.articles():
        articles.append(article)
        characters += len(article.markup)
        if characters >= BATCH_CHARACTERS:
            yield articles, reader.hidden_namespaces
            articles, characters = [], 0
    if articles:
        yield articles, reader.hidden_namespaces


def _label(batch: Batch) -> str:
    return f"'{batch[0][0].title}'"
