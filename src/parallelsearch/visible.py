"""Text of models, passages and servers for a terminal, a log or a page: what would steer the reader is written out."""

from __future__ import annotations

import re

# Control characters but tab and line feed, among them the escape of terminal sequences and NUL; marks and controls of
# writing direction (Unicode Bidirectional Algorithm); line and paragraph separators; halves of surrogate pairs.
_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str) -> str:
    r"""`text` with every steering character as an escape: ESC as \x1b, right-to-left override as \u202e."""
    return _STEERING.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), text)
