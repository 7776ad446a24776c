"""Terms that are added to any reward, by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import get_args

import pyarrow.parquet as pq
import pytest

from parallelsearch.agent.transcript import parse_transcript
from parallelsearch.config import EXTRA_TERMS, SEMANTICS, RewardConfig, StudyConfig
from parallelsearch.config_files import load_study, merge, read_yaml, validated
from parallelsearch.errors import ConfigError
from parallelsearch.evaluation.episodes import Provenance, read_episodes, write_episodes
from parallelsearch.plan.planning import StudyPlan
from parallelsearch.records import Question, Structure
from parallelsearch.rewards.breakdown import TERMS
from parallelsearch.rewards.compose import score
from parallelsearch.rewards.extra import TERM
from parallelsearch.training.verl.training_metrics import episode_means

ROOT = Path(__file__).resolve().parents[2]
QUESTION = Question("q", "musique", "dev", "Which city?", ("Lima",), "2hop", Structure.SEQUENTIAL)
# 5 words of the model, then 5; the nine of the observation are not its own.
TEXT = (
    "<think> a capital </think><search> capital</search>\n\n<information>Doc 1(Title: x) y z y z y\n</information>\n\n"
    "<think> it is </think> <answer>Lima</answer>"
)
EPISODE = parse_transcript(QUESTION, TEXT)


def test_the_length_of_a_response_is_counted_in_hundreds_of_words() -> None:
    words = sum(len(turn.text.split()) for turn in EPISODE.turns)
    assert words == 10 and TERM["response_length"](EPISODE, QUESTION) == pytest.approx(-0.10)


@pytest.mark.parametrize("semantics", get_args(SEMANTICS))
def test_a_term_is_added_to_every_reward_with_its_weight(semantics: str) -> None:
    without = score(EPISODE, QUESTION, RewardConfig(semantics=semantics))
    made = score(EPISODE, QUESTION, RewardConfig(semantics=semantics, extra={"response_length": 0.5}))
    assert made.terms == {**without.terms, "response_length": pytest.approx(-0.05)}
    assert made.total == pytest.approx(without.total - 0.05) and made.by_turn == without.by_turn


def test_settings_with_a_term_can_be_looked_up() -> None:
    """The agent's loop of a training job keeps what it opened by its settings."""
    with_term = RewardConfig(extra={"response_length": 0.5})
    assert {with_term: 1}[RewardConfig(extra={"response_length": 0.5})] == 1
    assert hash(RewardConfig()) == hash(RewardConfig()) != hash(with_term)


def test_an_unknown_term_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError) as refused:
        validated(RewardConfig, {"extra": {"brevity": 1}}, "arm short")
    assert "'brevity'" in str(refused.value) and "'response_length'" in str(refused.value)
    with pytest.raises(ConfigError, match="finite"):
        validated(RewardConfig, {"extra": {"response_length": float("nan")}}, "arm short")


def test_names_of_terms_are_not_those_of_semantics() -> None:
    assert len(set(TERMS)) == len(TERMS) and set(get_args(EXTRA_TERMS)) == set(TERM) <= set(TERMS)
    assert "total" not in TERMS


def test_an_arm_without_extra_terms_has_the_settings_it_always_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise every finished run would be made again."""
    monkeypatch.chdir(ROOT)
    plan = StudyPlan(load_study())
    assert '"extra"' not in plan.train_settings("parallelsearch") + plan.evaluate_settings("parallelsearch")
    values = merge(read_yaml(ROOT / "config" / "config.yaml"), {"reward": {"extra": {"response_length": 0.5}}})
    changed = StudyPlan(validated(StudyConfig, values, "test"))
    assert '"extra":{"response_length":0.5}' in changed.train_settings("parallelsearch")


def test_episodes_keep_the_term_and_files_from_before_it_are_read(tmp_path: Path) -> None:
    scored = score(EPISODE, QUESTION, RewardConfig(extra={"response_length": 0.5}))
    path = tmp_path / "episodes.parquet"
    write_episodes(path, [(EPISODE, scored)], arm="a", seed=0, provenance=Provenance("", "", "", "", 1))
    assert read_episodes(path) == [(EPISODE, scored)]
    pq.write_table(pq.read_table(path).drop_columns(["reward_response_length"]), path)
    terms = {name: value for name, value in scored.terms.items() if name != "response_length"}
    assert read_episodes(path) == [(EPISODE, dataclasses.replace(scored, terms=terms))]


def test_training_curves_have_the_mean_of_the_term() -> None:
    record = {
        "stop_reason": "answered", "structure": "parallel", "em": 1.0, "decomposed": True, "llm_calls": 1,
        "searches": 0, "well_formed": True, "response_tokens": 4, "model_tokens": 4,
    }  # fmt: skip
    rewards = [{"total": 1.0, "response_length": -0.2}, {"total": 1.0, "response_length": -0.4}]
    assert episode_means([{**record, "reward": reward} for reward in rewards])["reward_response_length"] == (
        pytest.approx(-0.3)
    )
    assert "reward_response_length" not in episode_means([{**record, "reward": {"total": 1.0}}])
