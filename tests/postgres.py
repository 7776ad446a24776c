"""A PostgreSQL server of a test's own, on a free port, in a folder of its own; skips where its programs are missing."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from mlflow_server import free_port

USER, PASSWORD = "mlflow", "s3cret/of@the:test"  # with what has to be written as %2F, %40 and %3A in an address
ENCODED = "s3cret%2Fof%40the%3Atest"


def programs() -> Path:
    """The folder of initdb and pg_ctl; Debian keeps it out of the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    if not found and not on_path:
        pytest.skip("needs the Debian package postgresql (make postgresql)")
    return found[-1].parent if found else Path(str(on_path)).parent


@dataclass
class Postgres:
    """A server that can be stopped and started again."""

    folder: Path
    port: int
    programs: Path

    @property
    def address(self) -> str:
        """Without the password, which MLflow's server and this test get from the environment."""
        return f"postgresql+psycopg://{USER}@127.0.0.1:{self.port}/mlflow"

    @property
    def address_with_password(self) -> str:
        return f"postgresql://{USER}:{ENCODED}@127.0.0.1:{self.port}/mlflow"

    def start(self) -> None:
        options = f"-h 127.0.0.1 -p {self.port} -k {self.folder} -c fsync=off -c max_connections=60"
        self._run("pg_ctl", "start", "-w", "-D", self.folder / "data", "-l", self.folder / "log", "-o", options)

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "stop", "-w", "-m", mode, "-D", self.folder / "data")

    def connect(self, database: str = "mlflow") -> psycopg.Connection:
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user=USER, password=PASSWORD, dbname=database, autocommit=True
        )

    def dump(self) -> str:
        """Everything that the database holds, as text."""
        environment = {**os.environ, "PGPASSWORD": PASSWORD}
        command = [self.programs / "pg_dump", "-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "mlflow"]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    def _run(self, program: str, *arguments: str | Path) -> None:
        """PostgreSQL refuses to run as root: there its package's user does it."""
        command = [str(self.programs / program), *map(str, arguments)]
        user: Any = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
        done = subprocess.run(
            command, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            **user,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A running server with an empty database `mlflow`; stopped and removed at the end."""
    found = programs()
    folder = Path(
        tempfile.mkdtemp(prefix="parallelsearch-postgres-")
    )  # not in pytest's, which other users cannot enter
    server = Postgres(folder, free_port(), found)
    try:
        (folder / "password").write_text(PASSWORD)
        if os.geteuid() == 0:
            owner = pwd.getpwnam("postgres")
            for path in (folder, folder / "password"):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        secret = f"--pwfile={folder / 'password'}"
        server._run(
            "initdb", "-D", folder / "data", "-U", USER, "-A", "scram-sha-256", secret, "--no-sync", "-E", "UTF8"
        )
        server.start()
        try:
            with server.connect("postgres") as connection:
                connection.execute("CREATE DATABASE mlflow")
            yield server
        finally:
            if (folder / "data" / "postmaster.pid").exists():
                server.stop("immediate")
    finally:
        shutil.rmtree(folder)
