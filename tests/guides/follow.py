"""Follows guides of docs/ as they are written, in a fresh clone of this repository in a temporary folder.

    python tests/guides/follow.py [--with-this-environment] [--keep] [PAGE ...]

Every marked block of a page (guide_steps.py has the marks) is done in its order: files are written, commands run
literally by bash, and what the page says they print has to appear. The first step that fails ends it with page, line
and output. Without PAGE all guides are followed. Between two pages the clone is put back to what was cloned; only .venv
stays. Variables that a block exports, and the folder it changes to, hold in the blocks after it, as in a shell.

docs/cluster.md is followed on a Slurm of one node, which tests/workflow/one-node-slurm.sh brings up and takes down.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from guide_steps import DIFF, FILE, OUTPUT, GuideError, Step, changed, missing_line, steps_of

ROOT = Path(__file__).resolve().parents[2]
OWN_GUIDES = ("own-data-set.md", "own-corpus.md", "own-reward-term.md", "own-strategy.md")
CLUSTER = "cluster.md"
GUIDES = (*OWN_GUIDES, CLUSTER)
ONE_NODE_SLURM = ROOT / "tests" / "workflow" / "one-node-slurm.sh"
LONGEST_STEP = 3600.0  # seconds
# A block runs in a bash of its own that begins with what the last one left behind.
RUNNER = """
set -eo pipefail
[ ! -e "$FOLLOW_STATE/exports" ] || . "$FOLLOW_STATE/exports"
cd "$(cat "$FOLLOW_STATE/folder")"
trap 'code=$?; export -p >"$FOLLOW_STATE/exports"; pwd >"$FOLLOW_STATE/folder"; exit $code' EXIT
. "$FOLLOW_STATE/block"
"""


class Clone:
    """A fresh clone in `folder`, and the shell of somebody who follows pages in it."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None) -> None:
        """`environment`: variables of an environment that is there already; None: the pages make it."""
        self._clone = self.root = folder / "parallelsearch"
        self._elsewhere = folder / "elsewhere"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(self._clone)], check=True)
        self.made = environment is None
        self._state = folder / "state"
        self._variables = _plain_environment() | dict(environment or {}) | {"REPOSITORY": str(ROOT)}
        self._variables["FOLLOW_STATE"] = str(self._state)
        self.restore()

    def leave(self) -> None:
        """To a folder with nothing in it, for a page that begins with `git clone "$REPOSITORY" parallelsearch`."""
        shutil.rmtree(self._elsewhere, ignore_errors=True)
        self._elsewhere.mkdir()
        self._begin(self._elsewhere / "parallelsearch", self._elsewhere)

    def restore(self) -> None:
        """What was cloned, with .venv alone kept; and a new shell."""
        for command in (["reset", "--quiet", "--hard"], ["clean", "-fdxq", "-e", "/.venv"]):
            subprocess.run(["git", *command], cwd=self._clone, check=True)
        self._begin(self._clone, self._clone)

    def _begin(self, root: Path, folder: Path) -> None:
        """A new shell in `folder`, for pages about the checkout `root`."""
        self.root = root
        shutil.rmtree(self._state, ignore_errors=True)
        self._state.mkdir()
        (self._state / "folder").write_text(f"{folder}\n")
        if not self.made:
            self._variables["PYTHONPATH"] = str(root / "src")

    @property
    def path(self) -> str:
        """Where the shell looks for commands before a page changes it."""
        return self._variables["PATH"]

    def run(self, block: str, variables: Mapping[str, str], timeout: float = LONGEST_STEP) -> tuple[int, str]:
        """Exit code and output of a block of commands. What it started is ended when it takes longer than `timeout`."""
        (self._state / "block").write_text(block)
        log = self._state / "output"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                ["bash", "-c", RUNNER],
                env=self._variables | dict(variables),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(timeout)
            except BaseException as error:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(60)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                code = 124
        return code, log.read_text(encoding="utf-8", errors="replace")


class StepFailed(Exception):
    """A step that could not be done, or did not show what the page says."""

    def __init__(self, step: Step, reason: str, output: str = "") -> None:
        super().__init__(f"{step.place}: {reason}" + (f"\n--- output\n{output[-6000:]}" if output else ""))


def follow(clone: Clone, steps: Sequence[Step], variables: Mapping[str, str]) -> tuple[int, int]:
    """Does the steps of a page; returns how many were done and how many were left out. Raises StepFailed."""
    done = left_out = 0
    output = ""
    for step in steps:
        if step.kind == OUTPUT:
            if (line := missing_line(step.text, output)) is not None:
                raise StepFailed(step, f"the output lacks the line {line.strip()!r}", output)
            done += 1
            continue
        reason = step.skip
        if "environment" in step.flags and not clone.made:
            reason = "the environment of this test is used"
        if reason:
            print(f"  {step.place}: left out ({reason}): {step.title}", flush=True)
            left_out += 1
            continue
        begun = time.monotonic()
        if step.kind in (FILE, DIFF):
            _write(clone.root / step.path, step)
        else:
            code, output = clone.run(step.text, variables)
            if (code != 0) != ("fails" in step.flags):
                raise StepFailed(step, f"the commands ended with exit code {code}:\n{step.text}", output)
        print(f"  {step.place}: {time.monotonic() - begun:5.1f} s  {step.title}", flush=True)
        done += 1
    return done, left_out


def _write(path: Path, step: Step) -> None:
    if step.kind == FILE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(step.text, encoding="utf-8")
        return
    try:
        path.write_text(changed(path.read_text(encoding="utf-8"), step.text), encoding="utf-8")
    except GuideError as error:
        raise StepFailed(step, f"{step.path}: {error}") from None


def this_environment() -> dict[str, str]:
    """Variables with which a clone uses the environment that this runs in."""
    return {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{_plain_environment()['PATH']}"}


def _plain_environment() -> dict[str, str]:
    """The environment of somebody who has just logged in: without an active virtual environment or its packages."""
    left_out = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    plain = {name: value for name, value in os.environ.items() if name not in left_out and "SLURM" not in name}
    venv = Path(sys.prefix) / "bin"
    plain["PATH"] = os.pathsep.join(part for part in plain["PATH"].split(os.pathsep) if Path(part) != venv)
    return plain


@contextmanager
def one_node_slurm(path: str) -> Iterator[dict[str, str]]:
    """Variables of a Slurm on this machine, its srun before those of `path`; it is taken down at the end."""
    folder = Path(tempfile.mkdtemp(prefix="parallelsearch-slurm-"))
    subprocess.run([ONE_NODE_SLURM, "up", folder], check=True, timeout=600, stdout=subprocess.DEVNULL)
    try:
        yield {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": f"{folder / 'bin'}{os.pathsep}{path}"}
    finally:
        subprocess.run([ONE_NODE_SLURM, "down", folder], check=True, timeout=120)
        shutil.rmtree(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"default: {' '.join(GUIDES)}")
    parser.add_argument("--with-this-environment", action="store_true", help="leave `make env` out")
    parser.add_argument("--keep", action="store_true", help="leave the clone where it is")
    options = parser.parse_args()
    if subprocess.run(["git", "diff", "--quiet", "HEAD"], cwd=ROOT).returncode:
        print("What is not committed is not in the clone that is followed.", file=sys.stderr)
    folder = Path(tempfile.mkdtemp(prefix="parallelsearch-guides-"))
    results = []
    try:
        clone = Clone(folder, this_environment() if options.with_this_environment else None)
        for page in options.pages or GUIDES:
            print(page, flush=True)
            if page == CLUSTER:
                clone.leave()
            else:
                clone.restore()
            begun = time.monotonic()
            with one_node_slurm(clone.path) if page == CLUSTER else nullcontext({}) as variables:
                done, left_out = follow(clone, steps_of(ROOT / "docs" / page), variables)
            results.append(f"{page}: {done} steps done, {left_out} left out, {time.monotonic() - begun:.0f} s")
    except (StepFailed, GuideError) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    finally:
        print("\n".join(["", *results]), flush=True)
        if options.keep:
            print(f"The clone is at {folder / 'parallelsearch'}.")
        else:
            shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
