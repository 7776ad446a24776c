r"""Answers out of \boxed{...}: braces, several boxes, boxes that never close."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallelsearch.agent.boxed import boxed


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{Oslo}", "Oslo"),
        (r"The final answer is \[ \boxed{ Oslo } \].", "Oslo"),
        (r"\boxed{\text{Oslo}}", "Oslo"),
        (r"\boxed{\text{Oslo} and \text{Bergen}}", r"\text{Oslo} and \text{Bergen}"),
        (r"\boxed{x^{2} + {y}}", "x^{2} + {y}"),
        (r"\boxed{a \} b}", r"a \} b"),
        (r"\boxed{a \\} b}", r"a \\"),  # an escaped backslash escapes no brace
        (r"first \boxed{Bergen}, no: \boxed{Oslo}", "Oslo"),
        (r"\boxed{Oslo} or rather \boxed{Ber", "Oslo"),
        (r"\boxed{}", ""),
        (r"\boxed{ {a} ", None),
        (r"\boxed Oslo", None),
        (r"boxed{Oslo}", None),
        (r"\BOXED{Oslo}", None),
        ("", None),
    ],
)
def test_boxes(text, answer):
    assert boxed(text) == answer


@given(st.text(alphabet="ab \\{}", max_size=30))
def test_any_text_without_loose_braces_comes_back(inner):
    balanced = inner.replace("\\", "").replace("{", "").replace("}", "")
    assert boxed(f"x \\boxed{{{balanced}}} y") == balanced.strip()
    found = boxed(f"\\boxed{{{inner}")
    assert found is None or found in inner
