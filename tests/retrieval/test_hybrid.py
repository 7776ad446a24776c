"""Reciprocal rank fusion against sums by hand, the hybrid index behind the real server, and parts that do not match."""

from __future__ import annotations

import asyncio
import json
import shutil
from fractions import Fraction
from pathlib import Path

import httpx
import pytest
from small_study import Study

from parallelsearch.config import Bm25Config, HybridConfig
from parallelsearch.errors import DataError, MismatchError
from parallelsearch.files import MANIFEST
from parallelsearch.records import Hit, Passage
from parallelsearch.retrieval.bm25_retriever import Bm25Retriever
from parallelsearch.retrieval.hybrid_retriever import HybridRetriever, reciprocal_rank_fusion
from parallelsearch.retrieval.indexes.bm25 import write_bm25
from parallelsearch.retrieval.indexes.composed import write_hybrid
from parallelsearch.retrieval.opening import open_retriever
from parallelsearch.retrieval.retriever import LocalRetriever, Retriever
from parallelsearch.retrieval.serving.client import HttpRetriever
from parallelsearch.training.process.retriever_process import served_index


def hits(*ids: int) -> list[Hit]:
    return [Hit(Passage(number, f"T{number}", "text"), 100.0 - place) for place, number in enumerate(ids)]


def ids(found: list[Hit]) -> list[int]:
    return [hit.passage.id for hit in found]


@pytest.fixture(scope="module")
def hybrid(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """BM25 and a hybrid index (5 candidates of each list) beside the study's dense one."""
    folder = tmp_path_factory.mktemp("hybrid")
    write_bm25(study.corpus, folder / "bm25", Bm25Config())
    write_hybrid([study.index, folder / "bm25"], folder / "hybrid", HybridConfig(candidates=5))
    return folder


def test_ranks_are_fused_as_by_hand() -> None:
    found = reciprocal_rank_fusion([hits(7, 3, 5), hits(3, 9)], 60)
    by_hand = {3: Fraction(1, 62) + Fraction(1, 61), 7: Fraction(1, 61), 9: Fraction(1, 62), 5: Fraction(1, 63)}
    assert ids(found) == [3, 7, 9, 5]
    assert [hit.score for hit in found] == pytest.approx([float(by_hand[number]) for number in ids(found)], rel=1e-15)


def test_a_constant_of_zero_gives_plain_reciprocal_ranks() -> None:
    (first, *_) = reciprocal_rank_fusion([hits(1, 2), hits(2, 1), hits(3, 2)], 0)
    assert (first.passage.id, first.score) == (2, 2.0)  # 1/2 + 1 + 1/2, against 1 + 1/2 of passage 1


def test_equal_sums_come_in_the_order_of_their_ids_whatever_the_order_of_the_lists() -> None:
    lists = [hits(8, 4, 6), hits(4, 6, 8), hits(6, 8, 4)]
    for order in ((0, 1, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
        found = reciprocal_rank_fusion([lists[number] for number in order], 60)
        assert ids(found) == [4, 6, 8] and len({hit.score for hit in found}) == 1


def test_one_empty_list_leaves_the_order_of_the_other() -> None:
    assert ids(reciprocal_rank_fusion([hits(5, 2), []], 60)) == [5, 2]
    assert reciprocal_rank_fusion([[], []], 60) == []


def test_a_folder_is_opened_by_what_its_manifest_says(study: Study, hybrid: Path, tmp_path: Path) -> None:
    kinds = {study.index: LocalRetriever, hybrid / "bm25": Bm25Retriever}
    for folder, kind in kinds.items():
        opened = open_retriever(folder, "cpu")
        assert type(opened) is kind and isinstance(opened, Retriever)
        assert opened.description["ntotal"] == len(opened.corpus) == 43
    (tmp_path / MANIFEST).write_text('{"kind": "embeddings"}')
    with pytest.raises(DataError, match=r"has kind 'embeddings', which is no kind of index; known kinds: flat, .*bm25"):
        open_retriever(tmp_path)


def test_a_hybrid_search_is_the_fusion_of_what_its_parts_find(
    study: Study, hybrid: Path, retriever: LocalRetriever
) -> None:
    both = open_retriever(hybrid / "hybrid", "cpu")
    assert type(both) is HybridRetriever
    queries = [retriever.corpus[4].title, "a drummer and songwriter of a rock band", "xylophoneless quux"]
    dense, lexical = (part.search_now(queries, 5) for part in (retriever, open_retriever(hybrid / "bm25")))
    assert lexical[2] == []
    for top_k in (1, 3, 43):  # at most 5 of each list, however many are asked for
        for number, found in enumerate(both.search_now(queries, top_k)):
            expected = reciprocal_rank_fusion([dense[number], lexical[number]], 60)[:top_k]
            assert (ids(found), [h.score for h in found]) == (ids(expected), [h.score for h in expected])


def test_the_server_answers_from_a_hybrid_index(hybrid: Path, tmp_path: Path) -> None:
    both = open_retriever(hybrid / "hybrid", "cpu")
    queries = [both.corpus[4].title, "zzz qqq", both.corpus[9].title]
    with served_index(hybrid / "hybrid", tmp_path, wait_seconds=120) as url:
        ready = httpx.get(f"{url}/ready").json()
        found = asyncio.run(HttpRetriever(url).search(queries, 4))
    assert (ready["kind"], ready["ntotal"]) == ("hybrid", 43)
    expected = both.search_now(queries, 4)
    assert [ids(row) for row in found] == [ids(row) for row in expected]
    assert [[hit.score for hit in row] for row in found] == [[hit.score for hit in row] for row in expected]
    assert found[0][0].passage == both.corpus[4]


def test_indexes_of_different_corpora_are_not_fused(own_study: Study, hybrid: Path, tmp_path: Path) -> None:
    manifest = own_study.index / MANIFEST
    values = json.loads(manifest.read_text())
    real, values["corpus"]["sha256"] = values["corpus"]["sha256"], "0" * 64
    manifest.write_text(json.dumps(values))
    with pytest.raises(MismatchError) as refusal:
        write_hybrid([hybrid / "bm25", own_study.index], tmp_path, HybridConfig())
    assert real in str(refusal.value) and "0" * 64 in str(refusal.value) and not (tmp_path / MANIFEST).exists()


def two_lexical(corpus: Path, root: Path) -> None:
    """Two BM25 indexes and their fusion under `root`; no encoder has to be loaded."""
    write_bm25(corpus, root / "one", Bm25Config())
    write_bm25(corpus, root / "two", Bm25Config(stemmer="none"))
    write_hybrid([root / "one", root / "two"], root / "hybrid", HybridConfig())


def test_a_part_that_was_built_anew_is_refused_until_it_is_fused_again(study: Study, tmp_path: Path) -> None:
    two_lexical(study.corpus, tmp_path)
    before = json.loads((tmp_path / "two" / MANIFEST).read_text())["sha256"]
    after = write_bm25(study.corpus, tmp_path / "two", Bm25Config(b=0.75))["sha256"]
    with pytest.raises(MismatchError) as refusal:
        open_retriever(tmp_path / "hybrid")
    assert all(words in str(refusal.value) for words in (before, after, "rerun `parallelsearch index fuse`"))
    write_hybrid([tmp_path / "one", tmp_path / "two"], tmp_path / "hybrid", HybridConfig())
    assert open_retriever(tmp_path / "hybrid").description["kind"] == "hybrid"


def test_a_study_can_be_moved_as_a_whole(study: Study, tmp_path: Path) -> None:
    shutil.copytree(study.corpus, tmp_path / "here" / "corpus")
    two_lexical(tmp_path / "here" / "corpus", tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    assert len(open_retriever(tmp_path / "there" / "hybrid").search_now(["a drummer of a band"], 3)[0]) == 3
