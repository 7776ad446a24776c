"""What jobs ask a cluster for: figures by hand for the paper's study, and how they follow the work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parallelsearch.config_files import CONFIG_DIR, merge, read_yaml
from parallelsearch.plan.job_needs import LONGEST, SHORTEST, JobNeeds
from parallelsearch.plan.job_sizes import JobSizes
from parallelsearch.plan.planning import StudyPlan

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def needs(study: str | None = None, overlay: dict[str, Any] | None = None) -> JobNeeds:
    values = read_yaml(CONFIG_DIR / "config.yaml")
    if study:
        values = merge(values, read_yaml(CONFIG_DIR / f"{study}.yaml"))
    nothing_made = {"results": "results-of-no-study"}  # a study that was made here would say its own sizes
    return JobNeeds(JobSizes(StudyPlan.from_values(merge(values, nothing_made | (overlay or {})))))


def test_a_flat_index_of_wiki18_needs_four_bytes_a_value_while_it_is_built() -> None:
    paper = needs("paper")
    assert paper.sizes.passages("wiki18") == 21_015_324
    vectors_mb = 21_015_324 * 768 * 4 / 1e6  # 64,559 MB
    assert vectors_mb + 3000 < paper.index_mb("wiki18", 1) < vectors_mb + 4000
    assert paper.index_mb("wiki18", 2) == pytest.approx(1.5 * paper.index_mb("wiki18", 1), abs=1)
    half = needs("paper", {"corpora": {"wiki18": {"passages": 10_507_662}}})
    assert half.index_mb("wiki18", 1) - 3000 == pytest.approx((paper.index_mb("wiki18", 1) - 3000) / 2, rel=0.01)


def test_training_asks_for_the_offloaded_state_the_saved_policy_the_ranks_and_the_retriever() -> None:
    paper = needs("paper")
    parameters = 7_615_616_512
    # 28 bytes a parameter for actor and critic, 4 for the policy as it is saved, 8 ranks, the open index and its texts.
    retriever = 21_015_324 * (768 * 4 + 685) / 1e6 + 1000
    by_hand = 1.25 * (4000 + 8 * 8000 + 32 * parameters / 1e6 + retriever)
    assert paper.train_mb("parallelsearch", 1) == pytest.approx(by_hand, rel=0.001)
    on_two = needs("paper", {"training": {"nodes": 2}})
    assert paper.train_mb("parallelsearch", 1) - on_two.train_mb("parallelsearch", 1) == pytest.approx(
        1.25 * 14 * parameters / 1e6, rel=0.001
    )
    grpo = paper.train_mb("search-r1-grpo", 1)  # no critic: 12 bytes a parameter less
    assert paper.train_mb("parallelsearch", 1) - grpo == pytest.approx(1.25 * 12 * parameters / 1e6, rel=0.001)
    assert paper.train_cores("parallelsearch") == 96


def test_time_follows_steps_passages_and_questions_and_a_training_job_has_a_longest_limit() -> None:
    laptop, long = needs(), needs(overlay={"training": {"steps": 90}})
    assert laptop.train_minutes("parallelsearch") == SHORTEST
    assert long.train_minutes("parallelsearch") == 2 * (180 + 90 * 96 * 0.2 * 884_736 / 850_000) // 60 + 1
    assert needs("paper").train_minutes("parallelsearch") == LONGEST
    more = needs(overlay={"geoworld": {"passages": 360_000}})
    assert laptop.embed_minutes("geoworld", 1) == SHORTEST < more.embed_minutes("geoworld", 1)
    assert needs("paper").evaluate_minutes("nq.test", 1) < needs("paper").evaluate_minutes("popqa.test", 1)
    within, without = (needs("paper").evaluate_minutes("popqa.test", 1, unlimited=flag) for flag in (False, True))
    assert within < without <= within * 16384 / 3584 + 1  # its episodes can be that much longer


def test_the_papers_training_asks_for_the_eight_gpus_of_one_node_and_nothing_on_the_cpu() -> None:
    paper = needs("paper")  # appendix A.4: one node of eight
    asked = (paper.gpus("parallelsearch"), paper.nodes("parallelsearch"), paper.gres("parallelsearch"))
    assert (*asked, paper.tasks("parallelsearch")) == (8, 1, "gpu:8", 0)
    laptop = needs()
    assert (laptop.gpus("parallelsearch"), laptop.gres("parallelsearch"), laptop.tasks("parallelsearch")) == (0, "", 1)


def test_small_jobs_ask_for_little_so_that_a_study_fits_one_machine() -> None:
    laptop = needs()
    beside = laptop.train_mb("search-r1", 1) + laptop.evaluate_mb("geoworld.test", 1)
    assert beside < 9500  # what profiles/default lets run at once
    smoke = needs("smoke")
    assert (smoke.policy_cores(), smoke.embed_cores("geoworld"), smoke.embed_gpus()) == (2, 2, 0)
    assert needs("paper").embed_gpus() == 1


def test_rows_come_from_the_manifest_once_it_is_there_and_from_the_raw_file_before(tmp_path: Path) -> None:
    raw = tmp_path / "passages.jsonl"
    raw.write_text("x" * 685_000)
    overlay = {
        "results": str(tmp_path),
        "corpora": {"wiki18": {"passages": None, "source": "wiki18", "file": {"path": str(raw)}}},
    }
    sizes = needs(overlay=overlay).sizes
    assert sizes.passages("wiki18") == 1001
    (tmp_path / "corpus" / "wiki18").mkdir(parents=True)
    (tmp_path / "corpus" / "wiki18" / "manifest.json").write_text(json.dumps({"rows": 7}))
    assert sizes.passages("wiki18") == 7
