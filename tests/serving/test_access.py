"""Who may ask a server: this machine alone, or whoever has its token."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from served import served
from typer.testing import CliRunner

from parallelsearch.config import PolicyConfig, ServerConfig
from parallelsearch.engines.hf import HFEngine
from parallelsearch.engines.openai_client import OpenAIClient
from parallelsearch.engines.policy_server import PolicyService
from parallelsearch.errors import ConfigError, EngineError, RetrieverError
from parallelsearch.retrieval.serving.application import RetrieverService
from parallelsearch.retrieval.serving.client import HttpRetriever
from parallelsearch.serving.access import is_local, required_token
from parallelsearch.training.warm_start.policy import build_policy, train_tokenizer

VARIABLE = "PARALLELSEARCH_RETRIEVER_TOKEN"
TOKEN = "correct-horse-battery-staple"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "localhost", "::1", "[::1]"])
def test_an_address_of_this_machine_needs_no_token(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert is_local(host) and required_token(host, VARIABLE) is None
    monkeypatch.setenv(VARIABLE, f" {TOKEN}\n")
    assert required_token(host, VARIABLE) == TOKEN  # asked for wherever it is set


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "node17", "localhost.example.org", ""])
def test_an_address_that_others_reach_needs_a_long_one(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(ConfigError, match=f"{VARIABLE} is not set: set it to a long random text .* or give --no-token"):
        required_token(host, VARIABLE)
    monkeypatch.setenv(VARIABLE, "hunter2")
    with pytest.raises(ConfigError, match="has 7 characters") as refused:
        required_token(host, VARIABLE)
    assert "hunter2" not in str(refused.value)
    monkeypatch.setenv(VARIABLE, TOKEN)
    assert required_token(host, VARIABLE) == TOKEN
    monkeypatch.delenv(VARIABLE)
    assert required_token(host, VARIABLE, everybody=True) is None


@pytest.mark.parametrize("value", ["two words", "line\nbreak", "schlüssel", "nul\x01"])
def test_a_token_that_no_header_holds_is_refused_without_repeating_it(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(ConfigError, match=f"the secret in {VARIABLE} has characters other") as refused:
        required_token("127.0.0.1", VARIABLE)
    assert value not in str(refused.value)
    with pytest.raises(RetrieverError, match="has characters other"):
        asyncio.run(HttpRetriever("http://127.0.0.1:1").search(["a"], 1))
    monkeypatch.setenv("MY_KEY", value)
    server = ServerConfig(url="http://127.0.0.1:1/v1", model="m", key_variable="MY_KEY")
    with pytest.raises(EngineError, match="the secret in MY_KEY has characters other"):
        asyncio.run(OpenAIClient(server, "the judge", "evaluation.judge").post("x", {}))


@pytest.mark.parametrize("verb", [("retriever", "serve", "--index"), ("policy", "serve")])
def test_the_commands_open_no_port_to_others_without_a_token(verb: tuple[str, ...], tmp_path: Path) -> None:
    """Before the index or the model is even looked for."""
    command = [sys.executable, "-m", "parallelsearch.cli", *verb, str(tmp_path), "--host", "0.0.0.0", "--port", "0"]
    if verb[0] == "policy":
        (tmp_path / "config.json").write_text("{}")
        (tmp_path / "model.safetensors").write_bytes(b"")
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "other machines reach a server on 0.0.0.0" in done.stderr


@pytest.fixture(scope="module")
def engine() -> Iterator[HFEngine]:
    tokenizer = train_tokenizer(["Which city is larger?"] * 3, 320)
    opened = HFEngine(build_policy(PolicyConfig(hidden_size=16, layers=1, heads=2), tokenizer, 0), tokenizer)
    yield opened
    opened.close()


def test_with_a_token_every_path_but_health_asks_for_it(engine: HFEngine) -> None:
    paths = ["/retrieve", "/ready", "/metrics", "/v1/models", "/v1/completions", "/v1/chat/completions"]
    for app in (RetrieverService(token=TOKEN).app, PolicyService(engine, "tiny", TOKEN).app):
        known = {route.path for route in app.routes}  # type: ignore[attr-defined]
        assert known <= {*paths, "/health"}  # no schema, no pages of documentation
        with served(app) as url, httpx.Client(base_url=url) as client:
            assert client.get("/health").status_code == 200
            for path in known - {"/health"}:
                method = "GET" if path in ("/ready", "/metrics", "/v1/models") else "POST"
                for header in ({}, {"Authorization": "Bearer x"}, {"Authorization": f"Bearer {TOKEN[:-1]}"}):
                    refused = client.request(method, path, json={}, headers=header)
                    assert refused.status_code == 401, (path, header)
                    assert TOKEN[:-1] not in refused.text
                admitted = client.request(method, path, json={}, headers={"Authorization": f"Bearer {TOKEN}"})
                assert admitted.status_code != 401


def test_the_option_that_admits_everybody_is_the_only_way_around_a_token() -> None:
    from parallelsearch.retrieval.commands import retriever

    help_text = CliRunner().invoke(retriever, ["serve", "--help"]).output
    assert "--no-token" in help_text and "[default: 127.0.0.1]" in help_text
