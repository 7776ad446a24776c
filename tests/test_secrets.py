"""Secrets in the environment: sent where they belong, and in nothing that the real commands write."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import real_study
from planted_secrets import SECRETS, holding

from parallelsearch.errors import DataError
from parallelsearch.secret import HIDDEN, read_secret, without_secrets


class TalkativeServer(BaseHTTPRequestHandler):
    """An OpenAI-compatible server that repeats the key it was given: in replies, and in the refusals of /refuse."""

    keys: list[str]

    def do_POST(self) -> None:
        given = self.headers.get("Authorization", "")
        type(self).keys.append(given)
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.startswith("/refuse"):
            status, body = 401, {"error": f"Incorrect key provided: {given}. You used {given}"}
        else:
            said = f'{{"rationale": "You said {given}", "judgement": "correct"}}'
            status, body = 200, {"choices": [{"message": {"content": said}}]}
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    TalkativeServer.keys = []
    with ThreadingHTTPServer(("127.0.0.1", 0), TalkativeServer) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def run(*words: object, folder: Path, code: int = 0) -> str:
    command = [sys.executable, "-m", "parallelsearch.cli", *map(str, words)]
    environment = {**os.environ, **SECRETS, "PARALLELSEARCH_DEBUG": "1"}  # tracebacks as well
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    (folder / "said.log").open("a").write(done.stdout + done.stderr)
    assert done.returncode == code, done.stderr
    return done.stderr


@pytest.mark.slow
def test_no_command_writes_a_secret_anywhere(server: str, shared_data: Path, tmp_path: Path) -> None:
    study = real_study.build(tmp_path / "results", shared_data, seeds=(0,))
    for name in ("config", "workflow"):
        shutil.copytree(Path(__file__).resolve().parents[1] / name, tmp_path / name)
    judge = {"url": f"{server}/v1", "model": "talkative", "key_variable": "MY_JUDGE"}
    episodes = study.episodes[0]
    store = tmp_path / "results" / "judge" / "replies.db"
    judgements = episodes.with_name("judgements.parquet")
    run("judge", judgements, episodes, "--store", store, "--settings", json.dumps(judge), folder=tmp_path)
    refusing = json.dumps({**judge, "url": f"{server}/refuse/v1"})
    other = store.with_name("other.db")
    said = run("judge", tmp_path / "x", episodes, "--store", other, "--settings", refusing, folder=tmp_path, code=1)
    assert HIDDEN in said and "environment variable MY_JUDGE" in said
    # With another key than the study's: a key written where its variable's name belongs.
    wrong = json.dumps({**judge, "key_variable": SECRETS["OPENAI_API_KEY"]})
    run("judge", tmp_path / "x", episodes, "--store", store, "--settings", wrong, folder=tmp_path, code=1)
    merged = json.dumps({"study": {"evaluation": {"judge": judge}}, "arms": {}})
    run("config", "write", tmp_path / "results" / "config.yaml", "--settings", merged, folder=tmp_path)
    inputs = [*study.inputs, judgements]
    report = ("--settings", json.dumps({"arms": list(real_study.ARMS)}))
    run("tables", "hotpotqa_by_structure", tmp_path / "results/tables/a", *inputs, *report, folder=tmp_path)
    run("report", tmp_path / "results/report/index.html", *inputs, *report, folder=tmp_path)
    run("track", "init", tmp_path / "results/mlflow", folder=tmp_path)
    run("track", "collect", tmp_path / "results", "--settings", '{"traces_per_run": 2}', folder=tmp_path)
    run("doctor", "--json", folder=tmp_path)
    assert set(TalkativeServer.keys) == {f"Bearer {SECRETS['MY_JUDGE']}"}
    assert [row for row in sqlite3.connect(store).execute("SELECT reply FROM replies") if HIDDEN in row[0]]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"replies.db", "mlflow.db", "index.html", "said.log"} <= {path.name for path in files}
    assert holding(tmp_path) == []


def test_the_search_finds_a_secret_where_there_is_one(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "x.db")
    database.execute("CREATE TABLE t (v TEXT)")
    database.execute("INSERT INTO t VALUES (?)", (f"a {SECRETS['HF_TOKEN']} b",))
    database.commit()
    assert holding(tmp_path) == [("x.db", "HF_TOKEN")]


def test_what_is_said_to_the_user_is_without_every_secret_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    text = str(DataError(f"It said {' and '.join(SECRETS.values())}."))
    # Only the caller knows that MY_JUDGE holds one.
    assert text.count(HIDDEN) == len(SECRETS) - 1 and SECRETS["MY_JUDGE"] in text
    assert without_secrets(text, "MY_JUDGE").count(HIDDEN) == len(SECRETS)


def test_short_and_harmless_values_are_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "yes")
    monkeypatch.setenv("MONKEY", "bananas!!")
    assert without_secrets("yes, bananas!!") == "yes, bananas!!"
    monkeypatch.setenv("A_KEY", "  abc\n")
    assert read_secret("A_KEY") == "abc" and read_secret("NOT_SET_KEY") == ""
