"""The title of a page, written by one rule in corpora and in questions: they are joined by equality of titles.

The rule is that of MediaWiki, which unescapes entities, takes every run of white space for one space, drops marks that
nobody sees and composes letters with their accents (manual: Page title); quoting of a CSV cell is undone as well.
"""

from __future__ import annotations

import re
import unicodedata

from parallelsearch.questions.text import unescape, without_cell_quotes

# Marks of direction, as MediaWiki drops them; soft hyphen, zero-width space, word joiner and byte-order mark besides.
_UNSEEN = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060\ufeff]")


def page_title(text: str) -> str:
    """`text` as the title of a page, '' when nothing is left; of a title that is right already, the same."""
    text = without_cell_quotes(text.strip())
    while (plain := unescape(text)) != text:  # copies of copies are escaped more than once
        text = plain
    return " ".join(unicodedata.normalize("NFC", _UNSEEN.sub("", text)).split())
