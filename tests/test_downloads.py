"""Downloads from a real HTTP server on this machine: whole, damaged, refused, interrupted and resumed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from typer.testing import CliRunner

from parallelsearch.corpus.commands import app as corpus
from parallelsearch.downloads import app, download, record_of, require_recorded
from parallelsearch.errors import DataError
from parallelsearch.questions.commands import app as questions

CONTENT = bytes(range(256)) * 8192  # 2 MiB
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Files(BaseHTTPRequestHandler):
    """/file, /file again and again cut after 1 MiB of what was asked for (/cut), 404 for the rest."""

    cut_first: bool = True
    ranges: list[str]

    def do_GET(self) -> None:
        if self.path not in ("/file", "/cut", "/no-ranges"):
            self.send_error(404)
            return
        asked = self.headers.get("Range", "")
        type(self).ranges.append(asked)
        match = re.fullmatch(r"bytes=(\d+)-", asked) if self.path != "/no-ranges" else None
        start = int(match[1]) if match else 0
        if start >= len(CONTENT):
            self.send_error(416)
            return
        self.send_response(206 if match else 200)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        end = start + (1 << 20) if self.path == "/cut" and not match else len(CONTENT)
        self.wfile.write(CONTENT[start:end])

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Files.ranges = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Files) as running:
        Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def test_a_file_arrives_whole_and_alone(server: str, tmp_path: Path) -> None:
    target = tmp_path / "data" / "file.bin"
    assert download(f"{server}/file", target, DIGEST) == DIGEST
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]


def test_an_interrupted_download_goes_on_where_it_stopped(server: str, tmp_path: Path) -> None:
    target = tmp_path / "file.bin"
    with pytest.raises(DataError, match="run again to go on"):
        download(f"{server}/cut", target, DIGEST)
    assert not target.exists()
    download(f"{server}/cut", target, DIGEST)
    assert target.read_bytes() == CONTENT
    begun, resumed = Files.ranges
    assert begun == "" and re.fullmatch(r"bytes=[1-9]\d+-", resumed)


def test_a_server_without_ranges_sends_everything_again(server: str, tmp_path: Path) -> None:
    target = tmp_path / "file.bin"
    with pytest.raises(DataError):
        download(f"{server}/cut", target)
    part = next(tmp_path.iterdir())
    again = part.with_name(part.name.replace(_mark(f"{server}/cut"), _mark(f"{server}/no-ranges")))
    part.rename(again)
    assert download(f"{server}/no-ranges", target, DIGEST) == DIGEST


def test_another_checksum_is_refused_with_both_and_nothing_stays(server: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{DIGEST}.*{'0' * 64}"):
        download(f"{server}/file", tmp_path / "file.bin", "0" * 64)
    assert list(tmp_path.iterdir()) == []
    download(f"{server}/file", tmp_path / "file.bin", DIGEST)


def test_a_missing_file_and_an_absent_server_name_the_url_and_the_next_step(server: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"/nothing answered 404 .*put the file at"):
        download(f"{server}/nothing", tmp_path / "file.bin")
    with pytest.raises(DataError, match=r"127\.0\.0\.1:1/x could not be fetched .*put the file at"):
        download("http://127.0.0.1:1/x", tmp_path / "file.bin")
    assert not (tmp_path / "file.bin").exists()


def _mark(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()[:8]


def test_a_checksum_that_nobody_registered_is_kept_and_compared_with_from_then_on(server: str, tmp_path: Path) -> None:
    target = tmp_path / "data" / "file.bin"
    run = CliRunner().invoke
    assert run(app, [f"{server}/file", str(target)]).exit_code == 0
    assert record_of(target).read_text() == f"{DIGEST}  file.bin\n"
    require_recorded(target)
    target.write_bytes(CONTENT[:-1])
    with pytest.raises(
        DataError, match=rf"file\.bin has SHA-256 \w{{64}}, but {DIGEST} is recorded in .*\.sha256; it was"
    ):
        require_recorded(target)
    record_of(target).write_text(f"{'0' * 64}  file.bin\n")  # what another server had once sent
    target.unlink()
    refused = run(app, [f"{server}/file", str(target)]).exception
    assert isinstance(refused, DataError) and f"{DIGEST}, but {'0' * 64}" in str(refused)
    assert not target.exists()


def test_a_registered_checksum_comes_before_a_recorded_one(server: str, tmp_path: Path) -> None:
    target = tmp_path / "file.bin"
    download(f"{server}/file", target)
    record_of(target).write_text(f"{'0' * 64}  file.bin\n")
    require_recorded(target, DIGEST)
    with pytest.raises(DataError, match="is registered"):
        require_recorded(target, "1" * 64)
    record_of(target).write_text("nothing of the kind")
    with pytest.raises(DataError, match=r"\.sha256 holds no SHA-256"):
        require_recorded(target)


@pytest.mark.parametrize("way", ["recorded", "registered"])
def test_a_changed_raw_file_is_not_read(way: str, tmp_path: Path) -> None:
    """By the real commands, before anything is written."""
    raw = tmp_path / "raw.jsonl"
    raw.write_text('{"id": 0, "title": "Oslo", "text": "A city."}\n')
    other = hashlib.sha256(b"another file").hexdigest()
    if way == "recorded":
        record_of(raw).write_text(f"{other}  raw.jsonl\n")
    option = ["--sha256", other] if way == "registered" else []
    expected = ["--expect", json.dumps({"sha256": other})] if way == "registered" else []
    for command, words in (
        (corpus, ["build", "geoworld", str(raw), str(tmp_path / "out"), *option]),
        (questions, ["import", "hotpotqa", str(raw), str(tmp_path / "out"), *expected]),
    ):
        refused = CliRunner().invoke(command, words).exception
        assert isinstance(refused, DataError) and f"but {other} is {way}" in str(refused)
        assert not (tmp_path / "out").exists()
