"""The report page: self-contained, everything escaped, and the right question answered both ways."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import real_study

from parallelsearch.evaluation.episodes import Provenance, write_episodes
from parallelsearch.records import Structure
from parallelsearch.report import examples
from parallelsearch.report.episode_data import episode_data
from parallelsearch.report.figures import FIGURES
from parallelsearch.report.page import render
from parallelsearch.report.study import Study, read_study

SETTINGS = json.dumps({"arms": list(real_study.ARMS), "descriptions": {"search-r1": "Outcome <b>only</b>."}})
EVIL = '<script>document.title="owned"</script><img src=x onerror="document.title=1">'


class Outline(HTMLParser):
    """Tags with their attributes, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


@pytest.fixture(scope="module")
def study(study_files: real_study.RealStudy) -> Study:
    return read_study(study_files.inputs, SETTINGS)


@pytest.fixture(scope="module")
def page(study: Study) -> str:
    return render(study)


def write_arm(folder: Path, arm: str, episodes: list) -> Path:
    path = folder / "eval" / arm / "seed0" / "hotpotqa.dev" / "episodes.parquet"
    origin = Provenance("1", "2", "3", "4", top_k=2)
    write_episodes(path, [(entry, None) for entry in episodes], arm=arm, seed=0, provenance=origin)
    return path


def test_the_page_needs_no_other_file_and_no_network(page: str) -> None:
    outline = Outline(page)
    for tag, attributes in outline.tags:
        for name in ("src", "href"):
            value = attributes.get(name)
            if value is not None:
                assert value.startswith(("#", "data:image/")), (tag, value)
    assert outline.count("link") == 0
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest", page)


def test_the_page_has_tables_figures_and_provenance(page: str) -> None:
    outline = Outline(page)
    assert outline.count("figure") == len(FIGURES) - 2  # the same top-k, no other budget
    assert outline.count("table") == 8
    assert all(attributes.get("alt") for tag, attributes in outline.tags if tag == "img")
    first = next(attributes["id"] for tag, attributes in outline.tags if tag in ("img", "h3") and "id" in attributes)
    assert first == "figure-gain"
    assert page.index("On parallel questions parallelsearch makes fewer LLM calls than") < page.index("figure-gain")
    assert "470, of which 2 infrastructure failures" in page
    assert "8, of which 8 complete" in page
    assert "sha256 222222222222" in page
    assert "<td>parallelsearch/seed1/hotpotqa.dev</td><td>111111111111</td>" in page


def test_text_of_the_settings_is_escaped(page: str) -> None:
    assert "Outcome &lt;b&gt;only&lt;/b&gt;." in page


def test_text_of_models_and_corpora_is_escaped(tmp_path: Path, shared_data: Path) -> None:
    draw = random.Random(0)
    question, passages = next(
        pair for pair in real_study.read_hotpotqa(shared_data) if pair[0].structure is Structure.PARALLEL
    )
    question = replace(question, text=EVIL, golden_answers=(EVIL,))
    evil_passages = [replace(passage, title=f"{passage.title} {EVIL}", text=EVIL) for passage in passages]
    arms = {"search-r1": False, "parallelsearch": True}
    files = [
        write_arm(tmp_path, arm, [real_study.answered(question, evil_passages, parallel, True, draw)])
        for arm, parallel in arms.items()
    ]
    text = render(read_study(files, "{}"))
    clean = Outline(text)
    scripts = [attributes for tag, attributes in clean.tags if tag == "script"]
    assert scripts == [{"type": "text/plain", "id": "episode-data"}, {}]  # data, and the page's own script
    assert all("onerror" not in attributes for _, attributes in clean.tags)
    assert "&lt;script&gt;document.title=" in text


def test_the_contrast_is_a_parallel_question_answered_right_both_ways(study: Study) -> None:
    found = examples.contrast(study)
    assert found is not None
    one_by_one, at_once = found.sequential, found.parallel
    assert one_by_one.arm == "search-r1"
    assert at_once.arm in ("parallelsearch", "no-decomposition-reward", "no-search-count-reward")
    assert one_by_one.episode.question == at_once.episode.question
    assert one_by_one.episode.question.structure is Structure.PARALLEL
    assert (one_by_one.episode.decomposed, one_by_one.episode.searches >= 2) == (False, True)
    assert (at_once.episode.decomposed, at_once.episode.searches) == (True, 1)
    assert found.both_right


def test_a_pair_with_a_wrong_answer_is_second_choice_and_said_to_be(tmp_path: Path, shared_data: Path) -> None:
    draw = random.Random(0)
    pairs = [pair for pair in real_study.read_hotpotqa(shared_data) if pair[0].structure is Structure.PARALLEL]
    # A golden answer that is no passage title, so that the other answer is wrong.
    chosen = next((q, p) for q, p in pairs if q.golden_answers[0] in ("yes", "no"))
    files = [
        write_arm(tmp_path, "search-r1", [real_study.answered(*chosen, False, False, draw)]),
        write_arm(tmp_path, "parallelsearch", [real_study.answered(*chosen, True, True, draw)]),
    ]
    study = read_study(files, "{}")
    found = examples.contrast(study)
    assert found is not None and not found.both_right
    assert "no question was answered right both ways" in render(study)


def test_a_study_without_such_a_pair_says_so(tmp_path: Path, shared_data: Path) -> None:
    pairs = real_study.read_hotpotqa(shared_data)[:5]
    episodes = [real_study.answered(*pair, False, True, random.Random(0)) for pair in pairs]
    study = read_study([write_arm(tmp_path, "search-r1", episodes)], "{}")
    assert examples.contrast(study) is None
    assert "No parallel question was answered one by one" in render(study)


def unpacked(text: str) -> dict:
    packed = re.search(r'id="episode-data">([^<]*)<', text)
    assert packed
    return json.loads(gzip.decompress(base64.b64decode(packed.group(1))))


def test_the_page_holds_every_episode_by_question_and_arm(page: str, study: Study) -> None:
    content = unpacked(page)
    assert len(content["episodes"]) == len(study.episodes) == 470
    found = {(e["arm"], e["seed"], content["questions"][e["question"]]["qid"]): e for e in content["episodes"]}
    for row in study.episodes.to_dict("records"):
        shown = found[row["arm"], row["seed"], row["qid"]]
        assert (shown["calls"], shown["searches"]) == (row["llm_calls"], row["searches"])
        assert (shown["decomposed"] == "yes") == row["decomposed"]
        assert shown["verdict"] == ("failed" if row["failed"] else "right" if row["em"] else "wrong")
    assert [e["question"] for e in content["episodes"]] == sorted(e["question"] for e in content["episodes"])


def test_a_study_of_too_many_episodes_shows_every_structure_and_says_what_is_left_out(study: Study) -> None:
    kept = study.episodes.iloc[40][["dataset", "split", "qid"]]
    data = episode_data(study, keep=[tuple(kept)], most=60)
    questions = {key[2:] for key in data.places}
    assert len(data.places) + data.left_out == len(study.episodes)
    assert 60 <= len(data.places) <= 70 and tuple(kept) in questions
    assert {study.episodes.set_index("qid").loc[key[2], "structure"].iloc[0] for key in questions} == {
        "parallel",
        "sequential",
    }
