"""Reading a short answer out of what a prompted model replied."""

from __future__ import annotations

import re

CONCLUSION = "So the answer is"
_CONCLUSION = re.compile(r"\banswer is:?\s*(.+)", re.IGNORECASE)
_LABEL = re.compile(r"^(final answer|answer)\s*:\s*", re.IGNORECASE)


def short_answer(reply: str) -> str | None:
    """The first line of a reply that was asked to be the answer alone, without a label; None where it is empty."""
    line = next((line.strip() for line in reply.splitlines() if line.strip()), "")
    return _LABEL.sub("", line).strip() or None


def concluded_answer(reply: str) -> str | None:
    """What follows the last 'answer is' of a reply, up to the line's end, without a full stop; None without one."""
    found = _CONCLUSION.findall(reply)
    return found[-1].strip().rstrip(".").strip() or None if found else None
