"""A real `mlflow server` on a free port, started as docs/tracking.md says, stopped by its process id."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

PATIENCE = 180  # seconds; the server imports most of MLflow


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def documented(**values: str) -> list[str]:
    """The command that docs/tracking.md gives for a server with PostgreSQL, with other values of its options."""
    text = (Path(__file__).resolve().parents[1] / "docs" / "tracking.md").read_text()
    start = text.index("mlflow server --backend-store-uri postgresql")
    words = shlex.split(text[start : text.index("\n\n", start)].replace("\\\n", " "))
    assert set(values) == {word for word in words if word.startswith("--")} - {"--serve-artifacts"}
    return [values.get(before, word) for before, word in zip(["", *words], words, strict=False)]


@dataclass
class MlflowServer:
    """A server over a backend store and a folder of artifacts; it can be stopped and started again."""

    backend: str
    artifacts: Path
    folder: Path  # of its log
    environment: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: subprocess.Popen | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = documented(
            **{
                "--backend-store-uri": self.backend,
                "--artifacts-destination": str(self.artifacts),
                "--host": "127.0.0.1",
                "--port": str(self.port),
                "--allowed-hosts": self.address.removeprefix("http://"),
            }
        )
        with (self.folder / "server.log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *command, "--workers", "1"],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={
                    **os.environ,
                    "MLFLOW_DISABLE_TELEMETRY": "true",
                    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
                    **self.environment,
                },
                start_new_session=True,
            )
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.address}/health", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        pytest.fail(f"the MLflow server did not start:\n{self.log()[-2000:]}")

    def stop(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(30)

    def log(self) -> str:
        return (self.folder / "server.log").read_text()


@contextmanager
def mlflow_server(backend: str, artifacts: Path, folder: Path, **environment: str) -> Iterator[MlflowServer]:
    """A running server; `folder` takes its log."""
    server = MlflowServer(backend, artifacts, folder, environment)
    try:
        server.start()
        yield server
    finally:
        server.stop()
