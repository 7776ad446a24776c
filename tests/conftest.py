"""Fixtures every test may use."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scripted import WORDS, WordRetriever

from parallelsearch.config import PolicyConfig
from parallelsearch.records import Passage

if TYPE_CHECKING:
    from postgres import Postgres

ROOT = Path(__file__).resolve().parent.parent
KILLS = 8


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real questions, passages and transcripts beside the checkout; tests that need them skip without."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"real test data is not at {folder}")
    return folder


@pytest.fixture(scope="session")
def database() -> Iterator[Postgres]:
    """A PostgreSQL server that all tests share, each with an experiment of its own."""
    from postgres import postgres

    with postgres() as server:
        yield server


@pytest.fixture(scope="session")
def byte_tokenizer():
    """A byte-level tokenizer in which every tag spans several tokens, as in published models."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|end|>"],
        show_progress=False,
    )
    bpe.train_from_iterator([WORDS] * 5, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|end|>", pad_token="<|end|>")
    fast.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}{% endfor %}assistant:\n"
    return fast


@pytest.fixture(scope="session")
def tokenizer():
    """The byte-level tokenizer of the laptop study, in which each tag is one token."""
    from parallelsearch.training.warm_start.policy import train_tokenizer

    return train_tokenizer([WORDS, "Doc 1(Title: Oslo) Oslo is the capital of Norway.\nResults for"] * 3, 400)


@pytest.fixture(scope="session")
def model(tokenizer):
    """A small policy with random weights."""
    from parallelsearch.training.warm_start.policy import build_policy

    return build_policy(PolicyConfig(hidden_size=64, layers=2), tokenizer, seed=1)


@pytest.fixture(scope="session")
def passages() -> list[Passage]:
    texts = [
        ("Oslo", "Oslo is the capital of Norway. It lies at the end of a long fjord and was founded in the year 1040."),
        ("Bergen", "Bergen is a city on the west coast of Norway, founded in 1070 by king Olav Kyrre."),
        ("Lima", "Lima is the capital of Peru. It was founded by Francisco Pizarro in 1535 as the city of kings."),
        ("Mount Everest", "Mount Everest is the highest mountain of the Earth, on the border of Nepal and China."),
        ("Tag soup", "A page about <search> boxes and </information> desks, <ANSWER>wrong</ANSWER>."),
    ]
    return [Passage(number, title, text) for number, (title, text) in enumerate(texts)]


@pytest.fixture
def retriever(passages) -> WordRetriever:
    return WordRetriever(passages)


@pytest.fixture(scope="session")
def written_by_verl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """See verl_checkpoints: whole/ of two ranks, kill0/ to kill7/ of one; policy/ is where they start. Read only."""
    from parallelsearch.training.warm_start.policy import build_policy, save_policy, train_tokenizer

    out = tmp_path_factory.mktemp("checkpoints")
    tokenizer = train_tokenizer(["Which city is larger?"] * 3, 320)
    policy = build_policy(PolicyConfig(hidden_size=16, layers=1, heads=2), tokenizer, 0)
    save_policy(policy, tokenizer, out / "policy")
    environment = {
        **os.environ,
        "VERL_USE_EXTERNAL_MODULES": "parallelsearch.training.verl.cpu.plugin",
        "OMP_NUM_THREADS": "1",
    }
    script = Path(__file__).with_name("verl_checkpoints.py")
    command = [sys.executable, str(script), str(out / "policy"), str(out), str(KILLS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return out
