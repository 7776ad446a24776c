"""Work in several processes: order, bounded memory, and no hang when one of them dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from parallelsearch.corpus.wiki_dump.worker_pool import AHEAD, in_order
from parallelsearch.errors import DataError


def slow_when_even(number: int) -> int:
    time.sleep(0.02 if number % 2 == 0 else 0)
    return number * 10


def die_at_five(number: int) -> int:
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def sleep_long(number: int) -> int:
    time.sleep(600)
    return number


def test_results_come_in_order_and_no_more_is_read_ahead_than_the_workers_need() -> None:
    read = 0

    def numbers() -> Iterator[int]:
        nonlocal read
        while read < 30:
            read += 1
            yield read

    for taken, result in enumerate(in_order(slow_when_even, numbers(), 2, str), start=1):
        assert result == taken * 10
        assert read <= taken + AHEAD * 2
    assert taken == 30


def test_a_dead_worker_is_an_error_that_names_the_place() -> None:
    with pytest.raises(DataError, match=r"a worker process died at page [1-5] or soon after.* fewer than 2 --workers"):
        list(in_order(die_at_five, range(20), 2, lambda number: f"page {number}"))


def test_a_fault_in_the_input_ends_the_work() -> None:
    def broken() -> Iterator[int]:
        yield from range(3)
        raise DataError("the input is broken")

    with pytest.raises(DataError, match="the input is broken"):
        list(in_order(slow_when_even, broken(), 2, str))


def test_workers_end_when_their_parent_is_killed() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_worker_pool import sleep_long\n"
        "from parallelsearch.corpus.wiki_dump.worker_pool import in_order\n"
        "print(list(in_order(sleep_long, range(2), 2, str)))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    try:
        assert wait(lambda: len(workers(parent.pid)) == 2)
        pids = workers(parent.pid)
        time.sleep(1)  # they have to be past their start
        parent.kill()
        parent.wait()
        assert wait(lambda: not any(alive(pid) for pid in pids))
    finally:
        parent.kill()


def workers(parent: int) -> list[int]:
    """Process ids of the spawned workers (not of multiprocessing's resource tracker)."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(pid) for pid in children if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait(condition, seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False
