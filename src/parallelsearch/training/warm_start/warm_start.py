"""The warm start: a policy learns the protocol from demonstrations before reinforcement learning.

While the first demonstrations are read their observations are in the loss as well, which teaches the policy what an
article looks like; before and after that the loss covers its own tokens only.
"""

from __future__ import annotations

import random
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parallelsearch.agent.tags import TAG_SETS
from parallelsearch.config import AgentConfig, PolicyConfig, WarmStartConfig
from parallelsearch.files import replacing
from parallelsearch.geoworld.facts import World
from parallelsearch.runs.run_folder import MetricsLog
from parallelsearch.runs.tensor_file import load_tensors
from parallelsearch.training.process.stop_request import StopRequest, stopped_early
from parallelsearch.training.warm_start.demonstration_batches import COMPARING_UNTIL, batches
from parallelsearch.training.warm_start.demonstrations import demonstrations
from parallelsearch.training.warm_start.policy import build_policy, save_policy, train_tokenizer
from parallelsearch.training.warm_start.supervised import SupervisedSteps, gradient_threads, rate_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TOKENIZER_DEMONSTRATIONS = 3000  # demonstrations the tokenizer is trained on
READING_UNTIL = 0.75  # of the steps: from the first demonstrations until here observations are in the loss as well
CLOSED_WORDS = " alike different first second third fourth yes no one two three four"  # each is to be one token
CHECKPOINT_EVERY = 250  # steps
LOG_EVERY = 25  # steps


def warm_start(
    out: Path,
    world: World,
    agent: AgentConfig,
    policy: PolicyConfig,
    config: WarmStartConfig,
    seed: int,
) -> dict[str, Any]:
    """Trains a policy on demonstrations over fictions of `world`; writes `out`/policy and `out`/metrics.jsonl.

    Returns the last step's metrics and the share of demonstrations that searched in parallel where both were possible.
    """
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(world, agent, policy, config, seed)
    model = build_policy(policy, tokenizer, seed)
    model.set_attn_implementation("eager")  # on a CPU its backward pass is faster than the fused kernel's
    model.train()
    metrics: dict[str, Any] = {}
    with gradient_threads() as pool, StopRequest() as stop:
        steps = SupervisedSteps(model, config.learning_rate, pool)
        first = _resume(out / "checkpoint.pt", steps)
        log = MetricsLog(out / "metrics.jsonl", keep_up_to=first)
        clock, tokens = time.monotonic(), 0
        stream = batches(world, agent, config, tokenizer, seed, first + 1)
        for step, batch in enumerate(islice(stream, config.steps - first), first + 1):
            reading = COMPARING_UNTIL < step / config.steps <= READING_UNTIL
            loss, accuracy = steps.take(batch, rate_of(step, config.steps), reading=reading)
            tokens += sum(int(part.mask.sum()) for part in batch)
            if step % LOG_EVERY == 0 or step == config.steps:
                rate = tokens / (time.monotonic() - clock)
                metrics = {"step": step, "loss": loss, "token_accuracy": accuracy, "tokens_per_second": rate}
                log.append(metrics)
                clock, tokens = time.monotonic(), 0
            if step % CHECKPOINT_EVERY == 0 or (stop.requested and step < config.steps):
                _save(out / "checkpoint.pt", steps, step)
            if stop.requested and step < config.steps:
                raise stopped_early(out, step, config.steps, str(stop.reason))
    with replacing(out / "policy") as folder:
        save_policy(model.eval(), tokenizer, folder)
    (out / "checkpoint.pt").unlink(missing_ok=True)
    return {**metrics, "parallel_share": _parallel_share(world, agent, config, seed)}


def _save(checkpoint: Path, steps: SupervisedSteps, step: int) -> None:
    import torch

    with replacing(checkpoint) as partial:
        optimisers = [optimiser.state_dict() for optimiser in steps.optimisers]
        torch.save({"step": step, "model": steps.model.state_dict(), "optimisers": optimisers}, partial)


def _resume(checkpoint: Path, steps: SupervisedSteps) -> int:
    """Takes over a checkpoint where there is one; returns its step, else 0."""
    if not checkpoint.exists():
        return 0
    state = load_tensors(checkpoint, "delete it: the warm start then begins anew")
    steps.model.load_state_dict(state["model"])
    for optimiser, saved in zip(steps.optimisers, state["optimisers"], strict=True):
        optimiser.load_state_dict(saved)
    return int(state["step"])


def _tokenizer(
    world: World, agent: AgentConfig, policy: PolicyConfig, config: WarmStartConfig, seed: int
) -> PreTrainedTokenizerBase:
    tags = TAG_SETS[agent.tags]
    stream = demonstrations(world, config.parallel_share, agent.top_k, random.Random(f"{seed}/tokenizer"), tags=tags)
    texts = [f"user\nassistant\n{CLOSED_WORDS}"] * TOKENIZER_DEMONSTRATIONS
    for demonstration in islice(stream, TOKENIZER_DEMONSTRATIONS):
        texts += [f"Question: {demonstration.draft.text}\n", *(segment.text for segment in demonstration.segments)]
    return train_tokenizer(texts, policy.vocabulary, tags.tokens)


def _parallel_share(world: World, agent: AgentConfig, config: WarmStartConfig, seed: int) -> float:
    stream = demonstrations(world, config.parallel_share, agent.top_k, random.Random(f"{seed}/share"))
    both = [d.parallel for d in islice(stream, 2000) if any(len(level) > 1 for level in d.draft.levels)]
    return sum(both) / len(both)
