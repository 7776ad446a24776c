"""Whole veRL jobs of single arms: what reaches the losses of actor and critic, and what a diverging job leaves.

A job takes minutes, so these tests run only when they are asked for (make test-all, or -m arms). The warm-started
policy, the index and the questions are made once.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
import torch
from checkout import ENVIRONMENT, ROOT
from training_job import CONFIG, INDEX, POLICY, QUESTIONS
from transformers import AutoModelForCausalLM, AutoTokenizer

from parallelsearch.agent.protocol import CORRECTION
from parallelsearch.config import ArmConfig
from parallelsearch.config_files import arm_names, load_arm, load_study, merge, validated
from parallelsearch.records import StopReason
from parallelsearch.training.warm_start.packaged_policy import export_packaged_policy

pytestmark = [pytest.mark.slow, pytest.mark.arms]

SMOKE = load_study(CONFIG / "smoke.yaml", config_dir=CONFIG)
ARMS = {name: load_arm(SMOKE, name, CONFIG) for name in arm_names(CONFIG)}
TRAINED = [name for name, arm in ARMS.items() if arm.training.steps and arm.training.algorithm in ("ppo", "grpo")]
TRAINED.remove("zerosearch")  # zerosearch-small is the same with a model that can be served here
WITH_SIMULATOR = {"training": {"batch_size": 4, "rollouts_per_prompt": 2}}  # it writes some 26 tokens a second
SIMULATOR = "smollm2-135m-instruct"
SIZES = {
    "training": {
        **{"steps": 3, "batch_size": 8, "mini_batch_size": 4, "micro_batch_size": 4, "save_every": 1},
        "guard": {"failures": 1.0},  # searches are made to fail
    },
    "agent": {"max_prompt_tokens": 768, "max_response_tokens": 768},  # room for the prompts of published models
}


@dataclass
class Job:
    """A finished job: its folder, its command, and the calls of each loss in order."""

    folder: Path
    process: subprocess.CompletedProcess[str]
    probes: Path

    def calls(self, loss: str) -> list[dict[str, Any]]:
        return [torch.load(path, weights_only=False) for path in sorted(self.probes.glob(f"{loss}-*.pt"))]

    def records(self) -> list[dict[str, Any]]:
        lines = [line for path in self.folder.glob("records/*.jsonl") for line in path.read_text().splitlines()]
        return [json.loads(line) for line in lines]


def run(made: Path, out: Path, name: str, *overlays: dict[str, Any], failing: int = 0) -> Job:
    """`parallelsearch train` of an arm with the smoke study's sizes, probed; `failing`: see loss_probe."""
    values = ARMS[name].model_dump()
    for overlay in (SIZES, *overlays):
        values = merge(values, overlay)
    arm = validated(ArmConfig, values, name)
    probes = out / "probes"
    probes.mkdir(parents=True, exist_ok=True)
    environment = {
        **ENVIRONMENT,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(ROOT / "src")]),
        "VERL_USE_EXTERNAL_MODULES": "loss_probe",
        "LOSS_PROBE": str(probes),
        "LOSS_PROBE_FAILING": str(failing),
    }
    command = [
        *("parallelsearch", "train", str(out / "run"), "--arm", name, "--policy", str(made / POLICY)),
        *("--index", str(made / INDEX), "--questions", str(made / QUESTIONS), "--settings", arm.model_dump_json()),
    ]
    if arm.training.simulator:
        command += ["--simulator", str(made / SIMULATOR)]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1500)
    return Job(out / "run", process, probes)


def trained_tokens(response: list[int], ids: dict[str, list[int]]) -> list[int]:
    """1 for each token of the model: a search closes with its tag, what follows up to the end of the block was shown.

    Read off the tags alone, without the episode's own record of where each token came from.
    """
    mask, position = [], 0
    while position < len(response):
        mask.append(1)
        position += 1
        if response[position - 1 : position] != ids["search"] or position == len(response):
            continue
        opened = response[position : position + len(ids["opening"])]
        assert opened == ids["opening"], "a search is followed by something else than an information block"
        end = response.index(ids["information"][0], position) + 1
        assert response[end : end + len(ids["gap"])] == ids["gap"]
        end += len(ids["gap"])
        mask += [0] * (end - position)
        position = end
    return mask


def without_correction(response: list[int], correction: list[int]) -> list[tuple[int, int]]:
    """Where the text that follows an invalid action stands: (start, end) of each occurrence."""
    size = len(correction)
    return [(at, at + size) for at in range(len(response) - size + 1) if response[at : at + size] == correction]


@pytest.mark.parametrize("name", TRAINED)
def test_only_the_models_own_tokens_reach_the_losses(name: str, made: Path, tmp_path: Path) -> None:
    training = ARMS[name].training
    overlays, rollouts = [], training.rollouts_per_prompt
    if training.simulator:
        export_packaged_policy(SIMULATOR, made / SIMULATOR)
        overlays, rollouts = [WITH_SIMULATOR], 2
    job = run(made, tmp_path, name, *overlays, failing=5)
    assert job.process.returncode == 0, job.process.stderr[-3000:]
    check_masks(job, made, ARMS[name])
    if training.algorithm == "grpo":
        check_groups(job, rollouts)


def check_masks(job: Job, made: Path, arm: ArmConfig) -> None:
    """The mask of every row that reached a loss, and the value of the loss."""
    masked = getattr(arm.training, "mask_observations", True)  # an ablation trains on retrieved text
    searches = arm.agent.max_search_turns > 0
    tokenizer = AutoTokenizer.from_pretrained(made / POLICY / "policy")
    ids = {
        "search": tokenizer.encode("</search>"),
        "opening": tokenizer.encode("\n\n<information>"),
        "information": tokenizer.encode("</information>"),
        "gap": tokenizer.encode("\n\n"),
    }
    correction = tokenizer.encode(CORRECTION)
    assert len(ids["search"]) == len(ids["information"]) == 1
    records = job.records()
    failed = [record for record in records if StopReason(record["stop_reason"]).is_infrastructure_failure]
    assert len(failed) < len(records)
    # The policy was warm-started with the study's own prompt; with another one it may not search at all. A simulator's
    # searches are not made to fail.
    knows_prompt = arm.agent.prompt == SMOKE.agent.prompt
    if knows_prompt and not arm.training.simulator:
        assert bool(failed) == searches
    shown = 0
    for loss in ("actor", "critic") if arm.training.algorithm == "ppo" else ("actor",):
        calls = job.calls(loss)
        seen: Counter[tuple[int, int]] = Counter()
        for call in calls:
            for tokens, mask in zip(call["responses"], call["response_mask"], strict=True):
                response, trained = tokens.tolist(), mask.int().tolist()
                assert len(response) == len(trained)
                if response == [tokenizer.eos_token_id] and trained == [0]:
                    seen[1, 0] += 1
                    continue
                expected = trained_tokens(response, ids)
                for start, end in without_correction(response, correction):
                    expected[start:end] = [0] * (end - start)
                shown += expected.count(0)
                if not masked:
                    expected = [1] * len(expected)
                assert trained == expected, tokenizer.decode(response)
                seen[len(trained), sum(trained)] += 1
            check_loss(call, loss)
        # Every episode passed each loss once: failed ones as one masked token, the others with all their tokens.
        assert seen[1, 0] == len(failed)
        del seen[1, 0]
        counted = [record for record in records if record not in failed]
        tokens = "model_tokens" if masked else "response_tokens"
        assert seen == Counter((record["response_tokens"], record[tokens]) for record in counted)
    if knows_prompt:
        assert bool(shown) == searches


def check_groups(job: Job, size: int) -> None:
    """GRPO's advantages worked out from the rewards of the episodes that have one question at one step."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in job.records():
        groups[record["episode"].rpartition("/")[0]].append(record)
    assert {len(group) for group in groups.values()} == {size}
    assert all(len({(record["step"], record["qid"]) for record in group}) == 1 for group in groups.values())
    advantages: dict[str, list[float]] = defaultdict(list)
    for call in job.calls("actor"):
        for prompt, mask, advantage in zip(call["uid"], call["response_mask"], call["advantages"], strict=True):
            own = advantage[mask.bool()]
            assert len(own) == 0 or float(own.max() - own.min()) == 0
            advantages[str(prompt)] += own[:1].tolist()
    assert set(advantages) <= set(groups)
    for prompt, given in advantages.items():
        lost = [StopReason(record["stop_reason"]).is_infrastructure_failure for record in groups[prompt]]
        rewards = [record["reward"]["total"] for out, record in zip(lost, groups[prompt], strict=True) if not out]
        spread = (stdev(rewards) if len(rewards) > 1 else 1.0) + 1e-6
        expected = [(reward - fmean(rewards)) / spread for reward in rewards]
        assert sorted(given) == pytest.approx(sorted(expected), abs=1e-4)


def test_a_job_that_diverges_is_ended_and_its_last_good_policy_stays(made: Path, tmp_path: Path) -> None:
    """The learning rate rises from 0 at step 1 to an absurd one at step 2, whose second mini-batch is not a number."""
    absurd = {"training": {"actor_learning_rate": 1e30, "actor_warmup_ratio": 1.0}}
    job = run(made, tmp_path, "parallelsearch", absurd)
    assert job.process.returncode == 1
    failed = json.loads((job.folder / "failed.json").read_text())
    assert (failed["kind"], failed["step"], failed["first_bad_step"], failed["last_good_step"]) == ("diverged", 2, 2, 1)
    assert "actor/pg_loss is nan" in failed["reason"] and failed["values"]["actor/pg_loss"] == "nan"
    sentence = job.process.stderr.strip().splitlines()[-1]
    assert sentence.startswith(f"parallelsearch: {job.folder}: ") and failed["reason"] in sentence
    assert not (job.folder / "done.json").exists() and not (job.folder / "policy").exists()
    assert [path.name for path in (job.folder / "checkpoints").glob("global_step_*")] == ["global_step_1"]
    before, after = (
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
        for folder in (made / POLICY / "policy", job.folder / "policy-last-good")
    )
    for name, tensor in before.items():  # at a rate of 0 the first step moved nothing
        torch.testing.assert_close(after[name], tensor, rtol=0, atol=0)
    again = run(made, tmp_path, "parallelsearch", absurd)
    assert again.process.returncode == 1
    assert again.process.stderr.strip().splitlines()[-1] == (
        f"parallelsearch: {job.folder / 'failed.json'}: the run was ended because {failed['reason']}; equal settings"
        f" and seed would most likely end there again: change the arm's settings, delete {job.folder} to train anew, or"
        " go on with --force from step 1."
    )


def test_a_job_whose_searches_fail_is_ended_as_an_outage(made: Path, tmp_path: Path) -> None:
    strict = {"training": {"guard": {"failures": 0.1}}}
    job = run(made, tmp_path, "parallelsearch", strict, failing=1)
    assert job.process.returncode == 1
    failed = json.loads((job.folder / "failed.json").read_text())
    assert (failed["kind"], failed["step"], failed["policy"]) == ("infrastructure", 1, None)
    lost = [record for record in job.records() if record["step"] == 1 and record["stop_reason"] == "retriever_error"]
    assert failed["values"] == {"lost": len(lost), "episodes": 8} and len(lost) > 0
    assert "start the same command again" in job.process.stderr


def check_loss(call: dict[str, Any], loss: str) -> None:
    """The loss by its formula over the model's tokens alone: Schulman et al. 2017, equations 7 and 9, token mean."""
    total = 0.0
    for row, mask in enumerate(call["response_mask"]):
        for token in mask.bool().nonzero().flatten().tolist():
            predicted = call["predicted"][row, token].double()
            if loss == "actor":
                advantage = call["advantages"][row][token].double()
                ratio = (predicted - call["old_log_probs"][row][token]).exp()
                surrogate = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
                total -= float(torch.max(surrogate, 3 * advantage) if advantage < 0 else surrogate)  # dual clip
            else:
                old, target = (call[key][row][token].double() for key in ("values", "returns"))
                clipped = old + (predicted - old).clamp(-0.5, 0.5)
                total += 0.5 * float(torch.max((predicted - target) ** 2, (clipped - target) ** 2))
    reported = call["metrics"]["actor/pg_loss" if loss == "actor" else "critic/vf_loss"]
    assert torch.isfinite(torch.tensor([call["loss"], reported])).all()
    assert reported == pytest.approx(total / call["batch_num_tokens"], rel=1e-4, abs=1e-6)
