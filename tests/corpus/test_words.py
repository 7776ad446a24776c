"""Blocks of 100 words."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallelsearch.corpus.words import count_words, word_blocks


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 0),
        ("Oslo is (in) Norway .", 5),
        ("東京は日本の首都。", 8),  # eight characters, the full stop goes with the last
        ("「東京」はTokyo 2020年", 6),  # 「東, 京」, は, Tokyo, 2020, 年
        ("ภาษาไทย", 2),  # seven letters, four a word
        ("서울은 수도이다", 2),  # Korean has spaces
    ],
)
def test_counting(text: str, words: int) -> None:
    assert count_words(text) == words


@given(
    st.lists(st.sampled_from(["a", "bb", "é.", "日", "本語", "ไทย", "กขคงจฉ", "「東」", "(x)"]), max_size=60),
    st.integers(1, 7),
)
def test_no_word_is_lost_or_twice(words: list[str], size: int) -> None:
    text = " ".join(words)
    blocks = word_blocks(text, size)
    assert "".join(blocks).replace(" ", "") == text.replace(" ", "")
    assert all(count_words(block) == size for block in blocks[:-1])
    assert not blocks or 1 <= count_words(blocks[-1]) <= size
    assert all(block in text for block in blocks)


def test_real_passages_have_the_words_that_dpr_counted(shared_data: Path) -> None:
    """DPR's published passages are blocks of 100 words, split at white space (Karpukhin et al. 2020)."""
    with gzip.open(shared_data / "dpr_psgs_with_ids.jsonl.gz", "rt", encoding="utf-8") as stream:
        texts = [json.loads(line)["text"] for line in stream]
    assert {count_words(text) for text in texts} == {100}
    assert word_blocks(" ".join(texts)) == texts
