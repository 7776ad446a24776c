"""The corpus source `mediawiki`: a dump -> (title, text) of its passages, the markup stripped by several processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from mwparserfromhell.parser import ParserError

from parallelsearch.corpus.raw_file import RawFile
from parallelsearch.corpus.wiki_dump.pages import Article, DumpReader
from parallelsearch.corpus.wiki_dump.plain_text import plain_text
from parallelsearch.corpus.wiki_dump.worker_pool import in_order
from parallelsearch.corpus.words import word_blocks
from parallelsearch.titles import page_title

BATCH_CHARACTERS = 200_000  # of markup
TitledText = tuple[str, str]
Batch = tuple[list[Article], frozenset[str]]


def read_mediawiki(raw: RawFile) -> Iterator[TitledText]:
    """Passages of 100 words of the articles of an XML dump, in the dump's order; the same for any number of workers.

    Pages are counted in `raw.read`; in `raw.dropped` those of another namespace, redirects, pages that are no wikitext,
    pages without text, and pages that mwparserfromhell cannot parse.
    """
    reader = DumpReader(raw)
    for passages, dropped in in_order(passages_of, _batches(reader), raw.workers, _label):
        raw.dropped.update(dropped)
        yield from passages


def passages_of(batch: Batch) -> tuple[list[TitledText], Counter[str]]:
    """The passages of some articles, and how many of the articles gave none, by reason."""
    articles, hidden_namespaces = batch
    passages: list[TitledText] = []
    dropped: Counter[str] = Counter()
    for article in articles:
        try:
            blocks = word_blocks(plain_text(article.markup, hidden_namespaces))
        except ParserError:
            dropped["unparsable"] += 1
            continue
        if not blocks:
            dropped["no text"] += 1
        title = page_title(article.title)
        passages.extend((title, block) for block in blocks)
    return passages, dropped


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
