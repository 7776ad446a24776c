"""The judge behind a real HTTP server of the OpenAI kind: what is asked, how often, and what becomes of replies."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pandas as pd
import pytest
from by_hand import ANSWER, SINGLE, episode, write

from parallelsearch import cli
from parallelsearch.config import JudgeConfig
from parallelsearch.errors import EngineError
from parallelsearch.evaluation.judge import judge_episodes, read_judgement
from parallelsearch.evaluation.metrics import load, summarise
from parallelsearch.records import StopReason


class Judge(ThreadingHTTPServer):
    """Judges an answer correct when it holds the letter z; `failing` statuses are given first."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[dict] = []
        self.keys: list[str | None] = []
        self.failing: list[int] = []
        self.says: str | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: Judge

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/chat/completions":
            self._reply(404, {"error": "no such path"})
        elif self.server.failing:
            self._reply(self.server.failing.pop(0), {"error": "later"})
        else:
            self.server.asked.append(body)
            self.server.keys.append(self.headers.get("Authorization"))
            answer = body["messages"][0]["content"].split("Answer to judge: ")[1].splitlines()[0]
            verdict = "correct" if "z" in answer else "incorrect"
            said = self.server.says or f'Here it is: {{"rationale": "as told", "judgement": "{verdict}"}}'
            self._reply(200, {"choices": [{"message": {"role": "assistant", "content": said}}]})

    def _reply(self, status: int, value: dict) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def judge() -> Iterator[Judge]:
    server = Judge()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def settings(judge: Judge) -> JudgeConfig:
    return JudgeConfig(url=judge.url, model="a-judge", longest_wait=0.01)


ENTRIES = [
    episode("1", (SINGLE, ANSWER), "the letter z"),
    episode("2", (SINGLE, ANSWER), "w"),
    episode("3", (SINGLE, ANSWER), "the letter z"),  # the same question text and answer as the first
    episode("4", (SINGLE,), None, stop=StopReason.TURN_LIMIT),
    episode("5", (), None, stop=StopReason.RETRIEVER_ERROR),
]


def test_each_pair_is_asked_once_and_never_again(judge: Judge, tmp_path: Path) -> None:
    store = tmp_path / "judge" / "replies.db"
    verdicts = judge_episodes(ENTRIES, settings(judge), store)
    assert verdicts == [True, False, True, False, None]
    assert len(judge.asked) == 2
    content = judge.asked[0]["messages"][0]["content"]
    assert "Question: ?" in content and "Golden answers: z" in content
    assert (judge.asked[0]["model"], judge.asked[0]["temperature"]) == ("a-judge", 0)
    assert judge_episodes(ENTRIES, settings(judge), store) == verdicts
    assert len(judge.asked) == 2
    another = settings(judge).model_copy(update={"model": "another"})  # another judge's opinion is its own
    assert judge_episodes(ENTRIES, another, store) == verdicts
    assert len(judge.asked) == 4


def test_the_key_comes_from_the_environment_only(judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    judge_episodes(ENTRIES[:1], settings(judge), tmp_path / "a.db")
    monkeypatch.setenv("MY_KEY", "secret")
    judge_episodes(ENTRIES[:1], settings(judge).model_copy(update={"key_variable": "MY_KEY"}), tmp_path / "b.db")
    assert judge.keys == [None, "Bearer secret"]
    assert b"secret" not in (tmp_path / "b.db").read_bytes()


def test_a_busy_server_is_asked_again(judge: Judge, tmp_path: Path) -> None:
    judge.failing = [503, 429, 500]
    assert judge_episodes(ENTRIES[:1], settings(judge), tmp_path / "r.db") == [True]


def test_what_was_asked_before_a_failure_is_kept(judge: Judge, tmp_path: Path) -> None:
    judge_episodes(ENTRIES[:1], settings(judge), tmp_path / "r.db")
    judge.failing = [401]
    with pytest.raises(EngineError, match=r"judge at http://127\.0\.0\.1:\d+/v1/chat/completions did not answer.*401"):
        judge_episodes(ENTRIES[:2], settings(judge), tmp_path / "r.db")
    judge_episodes(ENTRIES[:2], settings(judge), tmp_path / "r.db")
    assert len(judge.asked) == 2


def test_wrong_addresses_are_named(judge: Judge, tmp_path: Path) -> None:
    for url in (judge.url.removesuffix("/v1"), "http://127.0.0.1:9/v1", "nonsense"):
        wrong = settings(judge).model_copy(update={"url": url})
        with pytest.raises(EngineError, match=r"check evaluation\.judge\.url"):
            judge_episodes(ENTRIES[:1], wrong, tmp_path / "r.db")


def test_a_model_that_never_judges_is_an_error_and_one_such_reply_is_not_counted(judge: Judge, tmp_path: Path) -> None:
    judge_episodes(ENTRIES[:1], settings(judge), tmp_path / "r.db")
    judge.says = "I would rather not."
    assert judge_episodes(ENTRIES[:2], settings(judge), tmp_path / "r.db") == [True, None]
    with pytest.raises(EngineError, match="gave no judgement in 1 replies"):
        judge_episodes(ENTRIES[1:2], settings(judge), tmp_path / "other.db")


@pytest.mark.parametrize(
    ("reply", "judgement"),
    [
        ('{"rationale": "same city", "judgement": "correct"}', True),
        ('```json\n{"rationale": "it is \\"incorrect\\" to say", "judgment" : "Incorrect"}\n```', False),
        ('{"judgement": "correct"} or {"judgement": "incorrect"}', None),
        ("correct", None),
        ("", None),
    ],
)
def test_reading_a_judgement(reply: str, judgement: bool | None) -> None:
    assert read_judgement(reply) is judgement


def test_the_command_writes_a_row_an_episode_and_the_tables_read_it(
    judge: Judge, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "a", 0, ENTRIES)
    out = path.with_name("judgements.parquet")
    with pytest.raises(SystemExit) as stop:
        cli.main(
            [
                "judge",
                str(out),
                str(path),
                "--store",
                str(tmp_path / "r.db"),
                "--settings",
                settings(judge).model_dump_json(),
            ]
        )
    assert not stop.value.code
    assert "2 of 5 judged correct, 1 not judged" in capsys.readouterr().out
    assert pd.read_parquet(out)["judged"].tolist() == [True, False, True, False, None]
    (row,) = summarise(load([path], [out])).to_dict("records")
    assert (row["n"], row["failures"], row["judged"], row["em"]) == (4, 1, 0.5, 0)
