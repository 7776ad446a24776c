"""The steps of a guide: what a page of docs/ tells its reader to do, told by the marks of its fenced blocks.

```sh                      commands, run as they stand
```sh fails                the same; they end with an error, which the page shows
```sh environment          the same; makes the environment, and is left out where another one is used
```sh skip="needs GPUs"    not run here, for this reason
```yaml file=PATH          a file to write; the paragraph before names it (any language)
```diff file=PATH          lines to change in a file of the checkout, with their neighbours
```text output             what the commands before print: these lines, in this order; … stands for anything
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt

SHELL, FILE, DIFF, OUTPUT = "shell", "file", "diff", "output"
FLAGS = {"fails", "environment", "output"}


class GuideError(Exception):
    """A page whose marks say nothing that can be followed; the sentence names page and line."""


@dataclass(frozen=True, slots=True)
class Step:
    """One marked block; `line` is that of its fence."""

    page: str
    line: int
    kind: str
    text: str
    path: str = ""
    skip: str = ""
    flags: frozenset[str] = field(default_factory=frozenset)

    @property
    def place(self) -> str:
        return f"{self.page}, line {self.line}"

    @property
    def title(self) -> str:
        """What the step does, in one line."""
        if self.kind in (FILE, DIFF):
            return f"{'writes' if self.kind == FILE else 'changes'} {self.path}"
        return next((line for line in self.text.splitlines() if not line.startswith("#")), "")


def steps_of(page: Path) -> list[Step]:
    """The steps of a page in order. Raises GuideError for a mark that is none."""
    return list(_steps(page.name, page.read_text(encoding="utf-8")))


def _steps(name: str, text: str) -> Iterator[Step]:
    before = ""
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "inline":
            before = token.content
        if token.type != "fence":
            continue
        assert token.map is not None  # which a fence always has
        yield from _step(name, token.map[0] + 1, token.info, token.content, before)


def _step(name: str, line: int, info: str, text: str, before: str) -> Iterator[Step]:
    place = f"{name}, line {line}"
    language, *marks = shlex.split(info) or [""]
    named = dict(mark.split("=", 1) for mark in marks if "=" in mark)
    flags = frozenset(mark for mark in marks if "=" not in mark)
    if unknown := (named.keys() - {"file", "skip"}) | (flags - FLAGS):
        raise GuideError(f"{place}: the block is marked {', '.join(sorted(unknown))}, which means nothing.")
    if path := named.get("file"):
        if f"`{path}`" not in before:
            raise GuideError(f"{place}: the paragraph before the block does not name its file, `{path}`.")
        yield Step(name, line, DIFF if language == "diff" else FILE, text, path, named.get("skip", ""))
    elif language == "sh":
        yield Step(name, line, SHELL, text, skip=named.get("skip", ""), flags=flags)
    elif "output" in flags:
        yield Step(name, line, OUTPUT, text)


def changed(old: str, diff: str) -> str:
    """`old` with the change that a block says: its lines without a sign and with - have to stand there once."""
    found = "".join(line[1:] for line in diff.splitlines(keepends=True) if line[0] in " -")
    wanted = "".join(line[1:] for line in diff.splitlines(keepends=True) if line[0] in " +")
    if old.count(found) != 1:
        raise GuideError(f"the lines to change stand {old.count(found)} times in the file:\n{found}")
    return old.replace(found, wanted)


def missing_line(expected: str, output: str) -> str | None:
    """The first line of `expected` that `output` does not have, in this order; None where it has all.

    White space counts as one blank, and … as anything; a line of … alone says nothing.
    """
    lines = iter([" ".join(line.split()) for line in output.splitlines()])
    for wanted in expected.splitlines():
        parts = [" ".join(part.split()) for part in wanted.split("…")]
        if any(parts) and not any(_holds(line, parts) for line in lines):
            return wanted
    return None


def _holds(line: str, parts: list[str]) -> bool:
    start = 0
    for part in parts:
        start = line.find(part, start)
        if start < 0:
            return False
        start += len(part)
    return True
