r"""Reading an answer out of LaTeX's \boxed{...}."""

from __future__ import annotations

import re

_BOX = "\\boxed{"
_TEXT = re.compile(r"\\text\{([^{}]*)\}")


def boxed(text: str) -> str | None:
    r"""What stands in the last complete \boxed{...} of `text`, without a \text{...} around it; None without one.

    Braces inside the box have to be balanced; escaped ones do not count.
    """
    start = len(text)
    while (start := text.rfind(_BOX, 0, start)) >= 0:
        inner = _up_to_closing_brace(text[start + len(_BOX) :])
        if inner is not None:
            wrapped = _TEXT.fullmatch(inner.strip())
            return (wrapped.group(1) if wrapped else inner).strip()
    return None


def _up_to_closing_brace(text: str) -> str | None:
    depth, escaped = 1, False
    for position, character in enumerate(text):
        if escaped or character == "\\":
            escaped = not escaped
            continue
        depth += {"{": 1, "}": -1}.get(character, 0)
        if not depth:
            return text[:position]
    return None
