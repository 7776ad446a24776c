"""The guides of one's own followed step by step from a fresh clone, with the environment that the tests run in."""

from __future__ import annotations

from pathlib import Path

import pytest
from follow import OWN_GUIDES, Clone, StepFailed, follow, this_environment
from guide_steps import steps_of

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    return Clone(tmp_path_factory.mktemp("clone"), this_environment())


@pytest.mark.guides
@pytest.mark.parametrize("page", OWN_GUIDES)
def test_a_guide_can_be_followed(page: str, clone: Clone) -> None:
    clone.restore()
    steps = steps_of(DOCS / page)
    done, left_out = follow(clone, steps, {})
    assert (done, left_out) == (len(steps) - 1, 1)


def followed(clone: Clone, folder: Path, page: str) -> tuple[int, int]:
    (folder / "page.md").write_text(page)
    clone.restore()
    return follow(clone, steps_of(folder / "page.md"), {"FROM_OUTSIDE": "outer"})


def test_what_a_block_leaves_behind_holds_in_the_next_one(clone: Clone, tmp_path: Path) -> None:
    page = (
        "Write `new/x.txt`:\n\n```text file=new/x.txt\nhello\n```\n\n```sh\ncd new\nexport NAME='a  \"b\"'\n```\n\n"
        '```sh\ncat x.txt; echo "$NAME $FROM_OUTSIDE"\n```\n\n```text output\nhello\na "b" outer\n```\n'
    )
    assert followed(clone, tmp_path, page) == (4, 0)
    assert not (clone.root / "new").exists() or clone.restore() is None
    assert not (clone.root / "new").exists()


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("```sh\ntrue\n```\n\n```sh\necho seen\nfalse\necho unseen\n```\n", ["page.md, line 5", "exit code 1", "seen"]),
        ("```sh\n(exit 3) | cat\n```\n", ["page.md, line 1", "exit code 3"]),
        ("```sh fails\ntrue\n```\n", ["page.md, line 1", "exit code 0"]),
        ("```sh\necho one\n```\n\n```text output\none\ntwo\n```\n", ["page.md, line 5", "lacks the line 'two'"]),
        ("Change `README.md`:\n\n```diff file=README.md\n-no such line\n```\n", ["page.md, line 3", "stand 0 times"]),
    ],
)
def test_the_first_step_that_fails_is_named_with_page_line_and_output(
    page: str, said: list[str], clone: Clone, tmp_path: Path
) -> None:
    with pytest.raises(StepFailed) as failed:
        followed(clone, tmp_path, page)
    assert all(part in str(failed.value) for part in said)
    assert "--- output\nunseen" not in str(failed.value) and "\nunseen" not in str(failed.value).split("--- output")[-1]


def test_a_command_that_takes_too_long_is_ended_with_what_it_started(clone: Clone) -> None:
    clone.restore()
    code, output = clone.run("echo before\nsleep 1000 & sleep 1000", {}, timeout=1)
    assert (code, output) == (124, "before\n")


def test_steps_are_left_out_by_name(clone: Clone, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = '```sh skip="needs a GPU"\nexit 1\n```\n\n```sh environment\nexit 1\n```\n\n```sh\ntrue\n```\n'
    assert followed(clone, tmp_path, page) == (1, 2)
    assert "page.md, line 1: left out (needs a GPU): exit 1" in capsys.readouterr().out
