"""Two tokenizers, a small policy with random weights, passages and a retriever over them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from scripted import WordRetriever

from parallelsearch.config import PolicyConfig
from parallelsearch.records import Passage

WORDS = "the a of in was born city river capital country question answer which is older than mountain lake"


@pytest.fixture(scope="session")
def tokenizer():
    """The byte-level tokenizer of the laptop study, in which each tag is one token."""
    from parallelsearch.training.policy import train_tokenizer

    return train_tokenizer([WORDS, "Doc 1(Title: Oslo) Oslo is the capital of Norway.\nResults for"] * 3, 400)


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
def model(tokenizer):
    from parallelsearch.training.policy import build_policy

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
def real_passages(shared_data: Path) -> list[Passage]:
    """The first 300 passages of the shared corpus."""
    found = []
    with gzip.open(shared_data / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        for number, line in zip(range(300), lines, strict=False):
            row = json.loads(line)
            found.append(Passage(number, row["title"], row["text"]))
    return found
