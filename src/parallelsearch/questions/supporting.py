"""Titles of the pages that support an answer: the shapes in which HotpotQA's `supporting_facts` go round."""

from __future__ import annotations

from typing import Any

from parallelsearch.columns import unspelled
from parallelsearch.questions.row import Row


def supporting_titles(row: Row) -> tuple[str, ...]:
    """Titles in `supporting_facts`, one for each fact, in order; () when the field is absent or null.

    Shapes: [title, sentence] pairs (the authors), lists that begin with the title and go on otherwise (AMOR),
    {"title": ..} objects, and one {"title": [..], "sent_id": [..]} object (FlashRAG, `datasets`).
    Raises DataError for any other.
    """
    facts = unspelled(row.fields.get("supporting_facts"))
    if facts is None:
        return ()
    if isinstance(facts, dict):
        facts = [{"title": title} for title in row.object("supporting_facts").texts("title")]
    if not isinstance(facts, list):
        raise row.refusal("field 'supporting_facts' is neither a list nor an object with titles")
    return tuple(_title(row, fact) for fact in facts)


def _title(row: Row, fact: Any) -> str:
    title = fact.get("title") if isinstance(fact, dict) else fact[0] if isinstance(fact, list) and fact else None
    if not isinstance(title, str) or not title.strip():
        raise row.refusal(f"field 'supporting_facts' has an entry without a title: {str(fact)[:60]}")
    return title
