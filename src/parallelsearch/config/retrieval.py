"""What is searched, and how passages become vectors."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from parallelsearch.config.names import DottedName
from parallelsearch.config.section import Section

INDEX_KINDS = Literal["flat", "flat_fp16", "flat_int8", "ivf_flat", "ivf_pq", "hnsw"]


class Bm25Config(Section):
    """BM25 over title and text, Lucene's variant. The defaults of k1 and b are Anserini's."""

    k1: float = Field(0.9, ge=0, description="Saturation of a word's frequency.")
    b: float = Field(0.4, ge=0, le=1, description="Weight of a passage's length.")
    stemmer: Literal["english", "none"] = Field("english", description="Snowball stemmer.")
    stopwords: Literal["english", "none"] = Field("english", description="Words that are left out.")


class HybridConfig(Section):
    """Reciprocal rank fusion of a dense index and BM25 (Cormack, Clarke and Buettcher, SIGIR 2009)."""

    dense: INDEX_KINDS = Field("flat", description="Kind of the FAISS index; its parameters are index.parameters.")
    candidates: int = Field(100, ge=1, description="Passages taken from each list before they are fused.")
    k: int = Field(60, ge=0, description="Constant added to every rank; 60 in the paper.")


class RerankerConfig(Section):
    """A cross-encoder that puts the first passages of an index in a new order."""

    model: DottedName = Field(description="Name of a declaration in config/rerankers/.")
    candidates: int = Field(
        50, ge=1, description="Passages of the index that it scores for each query; no others are found."
    )


class IndexConfig(Section):
    """What is searched: a FAISS index over the embeddings, BM25, or both together; with or without a reranker."""

    kind: Literal[INDEX_KINDS, "bm25", "hybrid"] = Field("flat", description="Kind of FAISS index, bm25 or hybrid.")
    parameters: dict[str, int] = Field(default_factory=dict, description="Build and search parameters of the kind.")
    device: Literal["cpu", "cuda"] = Field("cpu", description="Where it is searched; cuda: split over all GPUs.")
    bm25: Bm25Config = Field(Bm25Config(), description="Settings of the kinds bm25 and hybrid.")
    hybrid: HybridConfig = Field(HybridConfig(), description="Settings of the kind hybrid.")
    reranker: RerankerConfig | None = Field(None, description="Second stage; none: the order of the index.")


class EmbedConfig(Section):
    """How passages are turned into vectors."""

    encoder: DottedName = Field("multilingual-e5-small", description="Name of a declaration in config/encoders/.")
    shards: int = Field(1, ge=1, description="Number of shards that are encoded as separate jobs.")
    tokens_per_batch: int = Field(8192, ge=64, description="Size of a batch in tokens, padding included.")
