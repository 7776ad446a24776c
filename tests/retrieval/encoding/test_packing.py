"""Several texts in one row: every token once, and each text's vector what it is alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from parallelsearch.files import sha256, write_json
from parallelsearch.retrieval.encoding.declaration import Pooling
from parallelsearch.retrieval.encoding.encoder import Encoder
from parallelsearch.retrieval.encoding.openvino_model import write_graph
from parallelsearch.retrieval.encoding.packing import ROW_TOKENS, STEP, pack
from parallelsearch.retrieval.encoding.torch_model import TorchModel

texts = st.lists(st.lists(st.integers(5, 99), min_size=1, max_size=90), min_size=1, max_size=40)


@given(texts)
def test_every_text_stands_in_one_row_whole_and_in_order(given_texts: list[list[int]]) -> None:
    packed = pack(given_texts, pad=0)
    for number, text in enumerate(given_texts):
        rows, places = np.nonzero(packed.texts == number)
        assert len(set(rows)) == 1 and list(np.diff(places)) == [1] * (len(text) - 1)
        assert list(packed.ids[rows, places]) == text
        assert list(packed.positions[rows, places]) == list(range(len(text)))
    free = packed.texts == -1
    assert free.sum() == packed.ids.size - sum(map(len, given_texts)) and not packed.ids[free].any()


@given(texts)
def test_rows_are_as_wide_as_agreed(given_texts: list[list[int]]) -> None:
    rows, width = pack(given_texts, pad=0).ids.shape
    assert rows % 2 == 0 and width % STEP == 0
    assert width < max(ROW_TOKENS, max(map(len, given_texts))) + STEP


def test_queries_leave_little_padding() -> None:
    lengths = np.random.default_rng(0).integers(8, 33, 128)  # a query has about 20 tokens
    packed = pack([[7] * length for length in lengths], pad=0)
    assert packed.ids.size < 1.15 * lengths.sum()  # padded to the longest in batches of 64: 1.6 times


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_packed_vectors_equal_those_of_the_library_text_by_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, pooling: Pooling
) -> None:
    import torch
    from transformers import AutoModel, BertConfig, RobertaConfig

    torch.manual_seed(0)
    kind = {"bert": BertConfig, "roberta": RobertaConfig}[family]
    config = kind(
        vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, pad_token_id=1
    )
    model = AutoModel.from_config(config).eval()
    model.save_pretrained(tmp_path)
    words = Tokenizer(models.WordLevel({f"w{number}": number for number in range(60)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    files = {name: sha256(tmp_path / name) for name in ("config.json", "tokenizer.json", "model.safetensors")}
    declared = {"query_prefix": "", "passage_prefix": "", "pooling": pooling, "max_tokens": 80, "normalize": False}
    write_json(tmp_path / "manifest.json", {**declared, "dim": 32, "files": files})
    monkeypatch.setenv("PARALLELSEARCH_FLOAT32", "1")

    random = np.random.default_rng(1)
    tokens = [list(map(int, random.integers(5, 60, size))) for size in (3, 70, 1, 12, 20, 33, 8)]
    write_graph(tmp_path)
    encoder = Encoder.open(tmp_path, "cpu")
    on_torch = Encoder(tmp_path, encoder.manifest, TorchModel(tmp_path, pooling, "cpu"), "cpu")
    with torch.inference_mode():
        for text, *vectors in zip(tokens, encoder.encode_tokens(tokens), on_torch.encode_tokens(tokens), strict=True):
            states = model(input_ids=torch.tensor([text])).last_hidden_state[0]
            expected = states.mean(0) if pooling == "mean" else states[0]
            for vector in vectors:
                assert np.allclose(vector, expected.numpy(), atol=1e-5)
