"""GRPO's groups: the names that veRL gives to rows of our data file, and what its advantages make of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("verl.trainer")

from tensordict import TensorDict
from torchdata.stateful_dataloader import StatefulDataLoader
from transformers import AutoTokenizer
from verl import DataProto
from verl.trainer.ppo.core_algos import AdvantageEstimator, compute_grpo_outcome_advantage, get_adv_estimator_fn
from verl.trainer.ppo.utils import create_rl_dataset
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl.utils.dataset.rl_dataset import collate_fn

import parallelsearch.training.verl.advantages  # noqa: F401 (registers the estimator, as veRL's import does)
from parallelsearch.config_files import load_arm, load_study
from parallelsearch.records import Question, Structure
from parallelsearch.training.verl.config import GRPO, JobFiles, compose, overrides
from parallelsearch.training.verl.job import write_data
from parallelsearch.training.warm_start.policy import build_policy, save_policy, train_tokenizer

CONFIG = Path(__file__).resolve().parents[3] / "config"
ROLLOUTS = 3
# The first two questions are the same text, asked of two rows of the data file.
TEXTS = ("Which city is larger?", "Which city is larger?", "Who?")
REWARDS = ((1.0, 0.0, 0.0), (1.0, 1.0, 1.0), (0.0, 1.0, 1.0))
# (reward - mean) / (standard deviation of the sample), by hand: a single 1 of three is 2/3 / sqrt(1/3).
ADVANTAGES = (
    (2 / 3**0.5, -1 / 3**0.5, -1 / 3**0.5),
    (0.0, 0.0, 0.0),
    (-2 / 3**0.5, 1 / 3**0.5, 1 / 3**0.5),
)


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> TensorDict:
    """A batch as veRL's trainer draws it from our data file, one row a prompt, in the file's order."""
    folder = tmp_path_factory.mktemp("groups")
    study = load_study(CONFIG / "smoke.yaml", config_dir=CONFIG)
    arm = load_arm(study, "search-r1", CONFIG)
    grpo = {"algorithm": "grpo", "rollouts_per_prompt": ROLLOUTS}
    arm = arm.model_copy(update={"training": arm.training.model_copy(update=grpo)})
    tokenizer = train_tokenizer(TEXTS, 320)
    save_policy(build_policy(study.policy, tokenizer, 0), tokenizer, folder / "policy")
    questions = [
        Question(f"q{row}", "geoworld", "train", text, ("A",), "single", Structure.SINGLE)
        for row, text in enumerate(TEXTS)
    ]
    write_data(folder / "train.parquet", arm, questions)
    data = folder / "train.parquet"
    files = JobFiles(str(folder / "policy"), data, data, folder / "loops.yaml", folder / "checkpoints")
    config = compose(overrides(arm, files, 0)).data
    tokenizer = AutoTokenizer.from_pretrained(folder / "policy")
    dataset = create_rl_dataset(str(data), config, tokenizer, None)
    loader = StatefulDataLoader(dataset, batch_size=len(TEXTS), collate_fn=collate_fn)
    trainer = SimpleNamespace(train_dataloader=loader, train_dataloader_it=None)
    return PPOTrainer._fetch_one_gen_batch(trainer)


def names(batch: TensorDict) -> list[str]:
    return [str(name) for name in batch["uid"]]


def test_each_row_has_a_name_of_its_own_also_where_two_are_the_same_text(batch: TensorDict) -> None:
    assert [row["index"] for row in batch["extra_info"]] == [0, 1, 2]
    prompts = [row[0]["content"] for row in batch["raw_prompt"]]
    assert prompts[0] == prompts[1] != prompts[2]
    assert len(set(names(batch))) == 3


@pytest.fixture
def rollouts(batch: TensorDict) -> tuple[DataProto, list[str]]:
    """What the advantages are worked out from, and its keys in the transfer queue (verl/.../v1/agent_loop_tq.py)."""
    rows = [(name, session) for session in range(ROLLOUTS) for name in names(batch)]  # as they finish: mixed
    order = {name: row for row, name in enumerate(names(batch))}
    mask = torch.tensor([[1, 0, 1, 1]] * len(rows))
    rewards = torch.zeros(len(rows), 4)
    rewards[:, 3] = torch.tensor([REWARDS[order[name]][session] for name, session in rows])
    tensors = {"token_level_rewards": rewards, "response_mask": mask}
    data = DataProto.from_dict(tensors, {"uid": np.array([name for name, _ in rows], dtype=object)})
    return data, [f"{name}_{session}_0" for name, session in rows]


def expected(keys: list[str], batch: TensorDict) -> list[list[float]]:
    order = {name: row for row, name in enumerate(names(batch))}
    values = [ADVANTAGES[order[name]][int(session)] for name, session, _ in (key.rsplit("_", 2) for key in keys)]
    return [[value, 0.0, value, value] for value in values]


def test_advantages_compare_the_rollouts_of_a_row_and_no_others(
    rollouts: tuple[DataProto, list[str]], batch: TensorDict
) -> None:
    data, keys = rollouts
    advantages, _ = compute_grpo_outcome_advantage(
        data.batch["token_level_rewards"], data.batch["response_mask"], data.non_tensor_batch["uid"]
    )
    np.testing.assert_allclose(advantages.numpy(), expected(keys, batch), atol=1e-5)


@pytest.mark.parametrize("estimator", [AdvantageEstimator.GRPO, GRPO])
def test_the_trainers_own_way_to_them_is_the_same(
    rollouts: tuple[DataProto, list[str]], batch: TensorDict, estimator: AdvantageEstimator | str
) -> None:
    data, keys = rollouts
    result = compute_advantage_for_multi_trajectories(data, keys, estimator, num_repeat=ROLLOUTS, config={})
    np.testing.assert_allclose(result.batch["advantages"].numpy(), expected(keys, batch), atol=1e-5)


def test_a_lost_episode_moves_no_other() -> None:
    """By hand. a: 1 and 0 of three, one lost: mean 1/2, spread 1/sqrt 2. b: one is left, with nothing to compare."""
    rewards = torch.tensor([[0.0, 1.0], [0.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0]])
    mask = torch.tensor([[1, 1], [1, 1], [0, 0], [1, 1], [0, 0], [0, 0]])
    groups = np.array(["a", "a", "a", "b", "b", "b"], dtype=object)
    advantages, returns = get_adv_estimator_fn(GRPO)(rewards, mask, groups, config={})
    half = 0.5**0.5
    np.testing.assert_allclose(advantages.numpy(), [[half] * 2, [-half] * 2, *[[0.0] * 2] * 4], atol=1e-5)
    assert torch.equal(advantages, returns)
    unscaled, _ = get_adv_estimator_fn(GRPO)(rewards, mask, groups, config={"norm_adv_by_std_in_grpo": False})
    np.testing.assert_allclose(unscaled.numpy()[:3], [[0.5] * 2, [-0.5] * 2, [0.0] * 2], atol=1e-6)
