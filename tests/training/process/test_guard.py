"""The guard: what ends a job, where the trouble began, and that a healthy run is left alone."""

from __future__ import annotations

import math
from typing import Any

import pytest

from parallelsearch.config import GuardConfig, TrainingConfig
from parallelsearch.training.process.guard import Guard, Verdict

TRAINING = TrainingConfig(batch_size=10, guard=GuardConfig(window=2))


def row(step: int, **values: Any) -> dict[str, Any]:
    named = {key.replace("__", "/"): value for key, value in values.items()}
    return {"step": step, "episodes": 10, "failures": 0, "reward_mean": 0.6, "well_formed": 0.9, **named}


def run(rows: list[dict[str, Any]], training: TrainingConfig = TRAINING) -> Verdict | None:
    """The first verdict over `rows`."""
    guard = Guard(training)
    return next((verdict for entry in rows if (verdict := guard.see(entry))), None)


@pytest.mark.parametrize(
    "key",
    [
        "actor/pg_loss",
        "actor/ppo_kl",
        "actor/grad_norm",
        "actor/entropy",
        "critic/vf_loss",
        "critic/grad_norm",
        "entropy",
    ],
)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_figure_of_the_loss_that_is_not_a_finite_number_ends_the_job_at_that_step(key: str, value: float) -> None:
    verdict = run([row(1), row(2), row(3, **{key.replace("/", "__"): value}), row(4)])
    assert verdict is not None
    assert (verdict.kind, verdict.step, verdict.first_bad_step) == ("diverged", 3, 3)
    assert verdict.reason == f"{key} is {value} at step 3"
    assert list(verdict.values) == [key]


def test_other_figures_may_be_anything() -> None:
    """The share of peak speed is infinite where the peak of a device is not known."""
    assert run([row(step, perf__mfu__actor=math.inf, critic__vf_explained_var=math.nan) for step in (1, 2, 3)]) is None


def test_a_reward_that_falls_below_half_of_its_best_mean_of_two_steps_ends_the_job() -> None:
    # Means of two steps: 0.5, 0.7, 0.8 (the best), 0.65, then 0.38 < 0.4.
    rewards = [0.4, 0.6, 0.8, 0.8, 0.5, 0.26]
    verdict = run([row(step, reward_mean=value) for step, value in enumerate(rewards, 1)])
    assert verdict is not None
    assert (verdict.kind, verdict.step, verdict.first_bad_step) == ("diverged", 6, 6)  # 0.5 of step 5 is above 0.4
    assert verdict.values == pytest.approx({"reward_mean": 0.38, "best reward_mean": 0.8})
    assert "the mean reward has collapsed: 0.38 on average over steps 5 to 6, after 0.8 at its best" in verdict.reason


def test_the_trouble_began_with_the_first_step_of_the_window_that_is_too_low_by_itself() -> None:
    verdict = run([row(step, reward_mean=value) for step, value in enumerate([0.8, 0.8, 0.3, 0.3], 1)])
    assert verdict is not None and (verdict.step, verdict.first_bad_step) == (4, 3)


def test_a_small_or_negative_reward_may_lose_a_tenth_of_a_point_whatever_its_share() -> None:
    assert run([row(step, reward_mean=value) for step, value in enumerate([0.08, 0.08, 0.0, 0.0, 0.0], 1)]) is None
    assert run([row(step, reward_mean=value) for step, value in enumerate([-0.1, -0.1, -0.15, -0.15], 1)]) is None
    assert run([row(step, reward_mean=value) for step, value in enumerate([-0.1, -0.1, -0.3, -0.3], 1)]) is not None


def test_the_share_of_well_formed_episodes_and_the_entropy_may_collapse_too() -> None:
    formed = run([row(step, well_formed=value) for step, value in enumerate([0.9, 0.9, 0.4, 0.4], 1)])
    assert formed is not None and "the share of well-formed episodes has collapsed" in formed.reason
    halved = [row(step, entropy=value) for step, value in enumerate([0.5, 0.5, 0.05, 0.05], 1)]
    assert run(halved) is None  # a policy that grows sure of itself is healthy
    gone = run([*halved, row(5, entropy=0.005), row(6, entropy=0.005)])
    assert gone is not None and gone.values == pytest.approx({"entropy": 0.005, "best entropy": 0.5})


def test_gibberish_ends_a_run_that_spoke_the_protocol_before_and_no_other() -> None:
    spoke = [row(step, gibberish=value) for step, value in enumerate([0.1, 0.1, 0.6, 0.6], 1)]
    verdict = run(spoke)
    assert verdict is not None and verdict.reason == "60% of the episodes of steps 3 to 4 hold no tag at all"
    assert run([row(step, gibberish=value) for step, value in enumerate([0.9, 0.8, 0.7, 0.8], 1)]) is None


def test_more_failed_or_missing_episodes_than_allowed_end_the_job_before_anything_else_does() -> None:
    assert run([row(1, failures=5)]) is None  # half of the step is allowed
    verdict = run([row(1, failures=6, actor__pg_loss=math.nan)])
    assert verdict is not None and (verdict.kind, verdict.values) == ("infrastructure", {"lost": 6, "episodes": 10})
    assert "6 of the 10 episodes of step 1 were lost" in verdict.reason
    # An exception in the agent loop leaves no record: 3 recorded episodes, one of them failed, are 8 lost ones.
    verdict = run([row(1, episodes=3, failures=1)])
    assert verdict is not None and verdict.values["lost"] == 8
    # Of a step that veRL did not finish, those that are missing may not have begun.
    assert Guard(TRAINING).lost_episodes(row(1, episodes=3, failures=1), finished=False) is None
    assert Guard(TRAINING).lost_episodes(row(1, episodes=7, failures=6), finished=False) is not None
    grpo = TRAINING.model_copy(update={"rollouts_per_prompt": 3})
    assert run([row(1, episodes=30, failures=15)], grpo) is None
    assert run([row(1, episodes=30, failures=16)], grpo) is not None


def test_only_failures_are_watched_where_the_guard_is_disabled() -> None:
    disabled = TRAINING.model_copy(update={"guard": GuardConfig(enabled=False)})
    assert run([row(1, actor__pg_loss=math.nan)], disabled) is None
    assert run([row(1, failures=6)], disabled) is not None


def test_a_run_that_goes_on_remembers_its_best() -> None:
    guard = Guard(TRAINING, [row(1, reward_mean=0.8), row(2, reward_mean=0.8)])
    assert guard.see(row(3, reward_mean=0.3)) is None  # the mean of steps 2 and 3 is 0.55
    assert guard.see(row(4, reward_mean=0.3)) is not None


def test_the_checkpoint_before_the_first_suspect_step_is_worth_keeping() -> None:
    guard = Guard(TRAINING.model_copy(update={"guard": GuardConfig(window=3)}))
    assert guard.good_before == 1
    for step, reward in enumerate([0.8, 0.8, 0.8], 1):
        guard.see(row(step, reward_mean=reward))
    assert guard.good_before == 4
    guard.see(row(4, reward_mean=0.2))
    guard.see(row(5, reward_mean=0.7))
    assert guard.good_before == 4  # step 4 still stands in the window
    guard.see(row(6, reward_mean=0.7))
    guard.see(row(7, reward_mean=0.7))
    assert guard.good_before == 8


def test_a_noisy_run_that_learns_is_left_alone() -> None:
    """Twenty steps of a curve that rises from 0.5 to 1.2 with a swing of 0.15, and an entropy that falls to a tenth."""
    rows = [
        row(
            step,
            reward_mean=0.5 + 0.035 * step + 0.15 * (-1) ** step,
            well_formed=0.95 - 0.1 * (step % 3 == 0),
            entropy=0.5 * 0.89**step,
            gibberish=0.02 * (step % 4),
        )
        for step in range(1, 21)
    ]
    assert run(rows, TrainingConfig(batch_size=10)) is None
