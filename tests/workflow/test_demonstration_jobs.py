"""Both arms that learn from demonstrations, for real: warm start, sampling, veRL's SFT trainer, and their answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from checkout import Checkout

from parallelsearch.answers import exact_match
from parallelsearch.evaluation.episodes import read_episodes, read_provenance

pytestmark = [pytest.mark.slow, pytest.mark.arms]

SMOKE = ("--configfile", "config/smoke.yaml", "--config", "results=results")
ARMS = ("sft", "rejection-sampling")
STEPS = 3


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """The smoke study's first stages, and both arms trained for three steps and evaluated."""
    checkout = Checkout(tmp_path_factory.mktemp("demonstrations"))
    checkout.edit("config/smoke.yaml", "training: {steps: 2,", f"training: {{steps: {STEPS},")
    checkout.edit("config/smoke.yaml", "warm_start: {steps: 200,", "warm_start: {steps: 400,")  # or little is right
    targets = [f"results/eval/{arm}/seed0/geoworld.test/episodes.parquet" for arm in ARMS]
    done = checkout.snakemake(*targets, *SMOKE, timeout=3000)
    logs = {path: path.read_text()[-3000:] for path in (checkout.root / "results" / "logs" / "train").glob("*")}
    assert done.returncode == 0, (done.stdout[-4000:], logs)
    return checkout


def folder_of(study: Checkout, arm: str) -> Path:
    return study.root / "results" / "train" / arm / "seed0"


def metrics_of(study: Checkout, arm: str) -> list[dict]:
    return [json.loads(line) for line in (folder_of(study, arm) / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("arm", ARMS)
def test_every_step_has_a_finite_loss_and_the_policy_answers(study: Checkout, arm: str) -> None:
    steps = metrics_of(study, arm)
    assert [row["step"] for row in steps] == [1, 2, 3]
    for row in steps:
        assert 0 < row["loss"] < 20 and row["seconds"] > 0 and row["tokens"] > 0 and "reward_mean" not in row
    done = json.loads((folder_of(study, arm) / "done.json").read_text())
    assert (done["arm"], done["steps"]) == (arm, STEPS)
    assert not (folder_of(study, arm) / "checkpoints").exists()
    episodes = study.root / "results" / "eval" / arm / "seed0" / "geoworld.test" / "episodes.parquet"
    assert len(read_episodes(episodes)) == 24
    assert read_provenance(episodes).policy_sha256 != ""


def test_training_on_answers_lowers_their_loss(study: Checkout) -> None:
    """The warm-started policy has never answered without a search: three steps bring the loss down by a lot."""
    losses = [row["loss"] for row in metrics_of(study, "sft")]
    assert losses[-1] < 0.9 * losses[0]


def test_sampled_episodes_are_kept_with_the_run_and_only_right_ones_are_learned_from(study: Checkout) -> None:
    folder = folder_of(study, "rejection-sampling")
    counts = metrics_of(study, "rejection-sampling")[-1]
    assert counts["sampled/prompts"] == STEPS * 8 and counts["sampled/episodes"] == STEPS * 8 * 5
    episodes = [e for path in sorted(folder.glob("sampled/*/episodes.parquet")) for e, _ in read_episodes(path)]
    good = [e for e in episodes if e.well_formed and exact_match(e.answer, e.question.golden_answers)]
    assert len(episodes) == counts["sampled/episodes"]
    assert len(good) == counts["sampled/kept"] == counts["demonstrations"]
