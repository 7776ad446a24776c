"""A real cross-encoder architecture with random weights: its order, its batches, its export and what is refused.

No published cross-encoder comes in a package, so a tiny BertForSequenceClassification is saved here and declared by its
folder: everything but the quality of its scores is as with published weights.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_study import DUPLICATED, Study

from parallelsearch.config import Bm25Config
from parallelsearch.errors import ConfigError, DataError, MismatchError
from parallelsearch.files import MANIFEST
from parallelsearch.retrieval.encoding.encoder import passage_text
from parallelsearch.retrieval.indexes.bm25 import write_bm25
from parallelsearch.retrieval.indexes.composed import write_reranked
from parallelsearch.retrieval.opening import open_retriever
from parallelsearch.retrieval.reranking.cross_encoder import CrossEncoder
from parallelsearch.retrieval.reranking.declaration import export_reranker, load_declaration

QUERIES = ["a drummer and songwriter of a rock band", "long item list"]


def save_model(folder: Path, small_rows: list[dict[str, str]], labels: int = 1) -> None:
    """A BERT of two layers with a WordPiece tokenizer of the passages' own words, in Hugging Face layout."""
    import torch
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    words = BertWordPieceTokenizer()
    words.train_from_iterator([row["text"] for row in small_rows], vocab_size=500, show_progress=False)
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(vocab_size=words.get_vocab_size(), max_position_embeddings=128, num_labels=labels, **shape)
    config.initializer_range = 0.5  # scores that differ by more than rounding
    BertForSequenceClassification(config).save_pretrained(folder)
    BertTokenizerFast(tokenizer_object=words._tokenizer).save_pretrained(folder)


def declare(config: Path, model: Path) -> None:
    (config / "rerankers").mkdir(parents=True)
    (config / "rerankers" / "tiny.yaml").write_text(
        f"source: hub\nmodel: {model}\nmax_tokens: 96\nlicence: none, random weights\n"
    )


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory, small_rows: list[dict[str, str]]) -> Path:
    folder = tmp_path_factory.mktemp("reranker")
    save_model(folder / "model", small_rows)
    declare(folder / "config", folder / "model")
    manifest = export_reranker("tiny", folder / "exported", folder / "config")
    assert manifest["max_tokens"] == 96 and set(manifest["files"]) >= {"model.safetensors", "tokenizer.json"}
    return folder / "exported"


@pytest.fixture(scope="module")
def reranked(study: Study, reranker: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reranked")
    write_bm25(study.corpus, folder / "bm25", Bm25Config())
    write_reranked(folder / "bm25", reranker, folder / "reranked", candidates=8)
    return folder


def one_by_one(folder: Path, query: str, texts: list[str]) -> list[float]:
    """The logits of transformers' own model, called for one pair at a time without padding."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        return [
            float(model(**tokenizer(query, text, truncation=True, max_length=96, return_tensors="pt")).logits[0, 0])
            for text in texts
        ]


def test_the_order_is_that_of_the_model_called_pair_by_pair(reranker: Path, reranked: Path) -> None:
    first, second = open_retriever(reranked / "bm25"), open_retriever(reranked / "reranked", "cpu")
    for query, found in zip(QUERIES, second.search_now(QUERIES, 5), strict=True):
        (candidates,) = first.search_now([query], 8)
        logits = one_by_one(reranker, query, [passage_text(hit.passage) for hit in candidates])
        by_hand = sorted(zip(candidates, logits, strict=True), key=lambda pair: (-pair[1], pair[0].passage.id))[:5]
        assert [hit.passage.id for hit in found] == [hit.passage.id for hit, _ in by_hand]
        assert [hit.score for hit in found] == pytest.approx([logit for _, logit in by_hand], abs=1e-4)
        assert [hit.passage.id for hit in found] != [hit.passage.id for hit in candidates[:5]]
    assert (second.description["kind"], second.description["ntotal"]) == ("reranked", 43)


def test_scores_do_not_depend_on_the_size_of_a_batch_and_equal_passages_tie(study: Study, reranker: Path) -> None:
    from parallelsearch.corpus.passages import Corpus

    model, corpus = CrossEncoder.open(reranker, "cpu"), Corpus(study.corpus)
    pairs = [(QUERIES[0], passage_text(corpus[number])) for number in range(43)]
    together = model.scores(pairs)
    assert model.scores(pairs, tokens_per_batch=1) == pytest.approx(together, abs=1e-4)
    assert together[DUPLICATED] == together[42] and len(set(together)) == 42
    assert model.scores([]) == []


def test_what_is_found_does_not_depend_on_the_top_k_of_others_in_the_same_search(reranked: Path) -> None:
    first, second = open_retriever(reranked / "bm25"), open_retriever(reranked / "reranked", "cpu")
    assert len(first.search_now(QUERIES[:1], 43)[0]) > 8
    (few,), (many,) = second.search_now(QUERIES[:1], 3), second.search_now(QUERIES[:1], 43)
    assert len(many) == 8 and [hit.passage.id for hit in many[:3]] == [hit.passage.id for hit in few]


def test_a_changed_model_is_refused(reranker: Path, tmp_path: Path) -> None:
    for file in reranker.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = bytearray((tmp_path / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (tmp_path / "model.safetensors").write_bytes(weights)
    with pytest.raises(MismatchError, match=r"model.safetensors has sha256 .*; rerun `parallelsearch reranker export`"):
        CrossEncoder.open(tmp_path, "cpu")


def test_another_reranker_in_its_place_is_refused(reranked: Path, tmp_path: Path) -> None:
    values = json.loads((reranked / "reranked" / MANIFEST).read_text())
    values["reranker"]["sha256"] = "0" * 64
    for part in (values["index"], values["reranker"], values["corpus"]):
        part["path"] = str((reranked / "reranked" / part["path"]).resolve())
    (tmp_path / MANIFEST).write_text(json.dumps(values))
    with pytest.raises(MismatchError, match=r"reranker sha256 0{64}, but .*; rerun `parallelsearch index rerank`"):
        open_retriever(tmp_path, "cpu")


def test_a_classifier_of_several_classes_and_pickled_weights_are_refused(
    tmp_path: Path, small_rows: list[dict[str, str]]
) -> None:
    import torch
    from safetensors.torch import load_file

    save_model(tmp_path / "model", small_rows, labels=3)
    declare(tmp_path / "config", tmp_path / "model")
    with pytest.raises(DataError, match="gives 3 scores for a pair"):
        export_reranker("tiny", tmp_path / "out", tmp_path / "config")
    torch.save(load_file(tmp_path / "model" / "model.safetensors"), tmp_path / "model" / "pytorch_model.bin")
    (tmp_path / "model" / "model.safetensors").unlink()
    with pytest.raises(DataError, match=r"reranker 'tiny': .*safetensors"):
        export_reranker("tiny", tmp_path / "out", tmp_path / "config")
    assert not (tmp_path / "out").exists()


def test_the_shipped_declaration_is_complete_and_an_unknown_one_is_named() -> None:
    declared = load_declaration("ms-marco-minilm-l6-v2", Path(__file__).resolve().parents[3] / "config")
    assert (declared.model, declared.licence) == ("cross-encoder/ms-marco-MiniLM-L6-v2", "Apache-2.0")
    assert declared.revision and len(declared.revision) == 40
    with pytest.raises(ConfigError, match=r"reranker is 'bge', .*known rerankers: ms-marco-minilm-l6-v2"):
        load_declaration("bge", Path(__file__).resolve().parents[3] / "config")
