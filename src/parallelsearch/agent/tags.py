"""The sets of tags in which an agent thinks, searches and answers; agent.tags names one of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from parallelsearch.agent.boxed import boxed


@dataclass(frozen=True)
class Tags:
    """One set: think, search, answer, and `passages`, the block of what a search found.

    `boxed`: the answer is what stands in a box (LaTeX) inside the answer block, and without a box there is none.
    """

    passages: str
    boxed: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return ("think", "search", self.passages, "answer")

    @property
    def tokens(self) -> tuple[str, ...]:
        """Every opening and closing tag."""
        return tuple(f"<{slash}{name}>" for name in self.names for slash in ("", "/"))

    @cached_property
    def any(self) -> re.Pattern[str]:
        """A tag; its groups are the slash of a closing one and the name."""
        return re.compile(rf"<(/?)({'|'.join(self.names)})>")

    @cached_property
    def of_any_case(self) -> re.Pattern[str]:
        return re.compile(self.any.pattern, re.IGNORECASE)

    def read_answer(self, inner: str) -> str | None:
        """The answer that an answer block with the text `inner` gives."""
        return boxed(inner) if self.boxed else inner.strip()

    def written_answer(self, answer: str) -> str:
        """The text of an answer block that gives `answer`."""
        return f"\\boxed{{{answer}}}" if self.boxed else answer


SEARCH_R1 = Tags("information")
RESEARCH = Tags("result", boxed=True)
TAG_SETS = {"search_r1": SEARCH_R1, "research": RESEARCH}
