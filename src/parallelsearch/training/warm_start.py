"""The warm start: a policy learns the protocol from demonstrations before reinforcement learning.

A small model has to learn to copy names first, and it learns that from short texts that repeat them. So the first
part of the steps has questions of a single look-up only, and for somewhat longer the observations are in the loss as
well. After that the loss covers the policy's own tokens only. Comparing two facts is hard to learn from the few tokens
that it takes in a demonstration, so each batch has exercises of that step alone beside its demonstrations.

Every batch is made from the seed and the step alone, so that a killed run goes on from its last checkpoint with the
batches it would have seen.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parallelsearch.agent.prompts import prompt_token_ids
from parallelsearch.config import AgentConfig, PolicyConfig, WarmStartConfig
from parallelsearch.files import replacing
from parallelsearch.geoworld.facts import World
from parallelsearch.geoworld.questions import TYPE_SHARES
from parallelsearch.retrieval.encoder import has_bf16_instructions
from parallelsearch.training.demonstrations import Demonstration, demonstrations, exercises
from parallelsearch.training.policy import build_policy, save_policy, train_tokenizer
from parallelsearch.training.run_folder import MetricsLog

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

TOKENIZER_DEMONSTRATIONS = 3000  # demonstrations the tokenizer is trained on
ROWS_A_PASS = 32  # a batch is read in passes of at most so many rows of like length
LONGEST_TO_SHORTEST = 1.3  # in a pass, so that little is padded
LENGTH_MULTIPLE = 32  # tokens; few different shapes, since a CPU's matrix kernels are prepared anew for each
TARGET_MULTIPLE = 256  # tokens; likewise for the output layer
SINGLE_SHARE = 0.25  # of the steps: the first ones, with questions of a single look-up
READING_SHARE = 0.55  # of the steps: the first ones, in which observations are in the loss
MUON_RATE = 20 / 3  # Muon's learning rate as a multiple of AdamW's
EXERCISES_A_DEMONSTRATION = 1
READING_WEIGHT = 0.5  # of an observation's mean loss, beside that of the policy's own tokens
CHECKPOINT_EVERY = 250  # steps
LOG_EVERY = 25  # steps
FINAL_RATE = 0.05  # of the peak learning rate
IGNORED = -100  # label of a token outside the loss

Row = tuple[list[int], list[int]]  # token ids and labels of one demonstration


@dataclass(frozen=True, slots=True)
class Padded:
    """Rows of one pass, each tensor [rows, longest]; `labels` hold IGNORED outside the loss, `mask` 0 on padding."""

    ids: torch.Tensor
    labels: torch.Tensor
    mask: torch.Tensor


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
    import torch

    out.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(world, agent, policy, config, seed)
    model = build_policy(policy, tokenizer, seed)
    model.set_attn_implementation("eager")  # on a CPU its backward pass is faster than the fused kernel's
    optimizers = _optimizers(model, config)
    checkpoint = out / "checkpoint.pt"
    first = 0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        first = state["step"]
    log = MetricsLog(out / "metrics.jsonl", keep_up_to=first)
    model.train()
    metrics: dict[str, Any] = {}
    clock, tokens = time.monotonic(), 0
    batches = _batches(world, agent, config, tokenizer, seed, first + 1)
    for step, batch in enumerate(islice(batches, config.steps - first), first + 1):
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * _schedule(step, config.steps)
        reading_weight = READING_WEIGHT if step <= READING_SHARE * config.steps else 0.0
        loss, accuracy = _optimise(model, optimizers, batch, reading_weight)
        tokens += sum(int(part.mask.sum()) for part in batch)
        if step % LOG_EVERY == 0 or step == config.steps:
            elapsed = time.monotonic() - clock
            metrics = {
                "step": step,
                "loss": loss,
                "token_accuracy": accuracy,
                "tokens_per_second": tokens / elapsed,
            }
            log.append(metrics)
            clock, tokens = time.monotonic(), 0
        if step % CHECKPOINT_EVERY == 0:
            with replacing(checkpoint) as partial:
                states = [optimizer.state_dict() for optimizer in optimizers]
                torch.save({"step": step, "model": model.state_dict(), "optimizers": states}, partial)
    with replacing(out / "policy") as folder:
        save_policy(model.eval(), tokenizer, folder)
    checkpoint.unlink(missing_ok=True)
    return {**metrics, "parallel_share": _parallel_share(world, agent, config, seed)}


def token_rows(demonstration: Demonstration, agent: AgentConfig, tokenizer: PreTrainedTokenizerBase) -> Row:
    """Token ids and labels of one demonstration; every piece is encoded by itself, as an episode does it."""
    ids = prompt_token_ids(agent.prompt, demonstration.draft.text, tokenizer)
    labels = [IGNORED] * len(ids)
    for segment in demonstration.segments:
        piece = tokenizer.encode(segment.text, add_special_tokens=False)
        ids += piece
        labels += piece if segment.trains_on else [IGNORED] * len(piece)
    return ids, labels


def _tokenizer(
    world: World, agent: AgentConfig, policy: PolicyConfig, config: WarmStartConfig, seed: int
) -> PreTrainedTokenizerBase:
    stream = demonstrations(world, config.parallel_share, agent.top_k, random.Random(f"{seed}/tokenizer"))
    texts = ["user\nassistant\n"] * TOKENIZER_DEMONSTRATIONS
    for demonstration in islice(stream, TOKENIZER_DEMONSTRATIONS):
        texts += [f"Question: {demonstration.draft.text}\n", *(segment.text for segment in demonstration.segments)]
    return train_tokenizer(texts, policy.vocabulary)


def _batches(
    world: World, agent: AgentConfig, config: WarmStartConfig, tokenizer: PreTrainedTokenizerBase, seed: int, first: int
) -> Iterator[list[Padded]]:
    """The batches of steps `first`, `first` + 1, ...; each is a list of passes."""
    for step in count(first):
        types = {"single": 1.0} if step <= SINGLE_SHARE * config.steps else TYPE_SHARES
        rng = random.Random(f"{seed}/demonstrations/{step}")
        stream = demonstrations(world, config.parallel_share, agent.top_k, rng, types)
        drills = exercises(world, rng)
        batch = [*islice(stream, config.batch_size), *islice(drills, EXERCISES_A_DEMONSTRATION * config.batch_size)]
        rows = [token_rows(demonstration, agent, tokenizer) for demonstration in batch]
        rows.sort(key=lambda row: len(row[0]))
        yield [_padded(part, tokenizer.pad_token_id) for part in _passes(rows)]


def _passes(rows: list[Row]) -> list[list[Row]]:
    """`rows`, sorted by length, cut into passes."""
    passes: list[list[Row]] = []
    for row in rows:
        full = not passes or len(passes[-1]) == ROWS_A_PASS
        if full or len(row[0]) > LONGEST_TO_SHORTEST * len(passes[-1][0][0]):
            passes.append([])
        passes[-1].append(row)
    return passes


def _padded(rows: list[Row], pad: int) -> Padded:
    import torch

    longest = _up_to_multiple(max(len(ids) for ids, _ in rows), LENGTH_MULTIPLE)
    ids = torch.tensor([row + [pad] * (longest - len(row)) for row, _ in rows])
    labels = torch.tensor([row + [IGNORED] * (longest - len(row)) for _, row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row, _ in rows])
    return Padded(ids, labels, mask)


def _optimizers(model: Any, config: WarmStartConfig) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for embeddings and norms. `peak` is a group's peak learning rate.

    With AdamW alone a policy of this size needs about twice as many steps until it copies names.
    """
    import torch

    named = list(model.named_parameters())
    matrices = [parameter for name, parameter in named if parameter.ndim == 2 and ".layers." in name]
    others = [parameter for name, parameter in named if parameter.ndim != 2 or ".layers." not in name]
    rate = config.learning_rate
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.Muon(matrices, lr=MUON_RATE * rate, momentum=0.95, nesterov=True, weight_decay=0.01),
        torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.98), weight_decay=0.0),
    ]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return optimizers


def _optimise(
    model: Any, optimizers: Sequence[torch.optim.Optimizer], passes: list[Padded], reading_weight: float
) -> tuple[float, float]:
    """One optimiser step over all passes; returns the mean loss and the accuracy on the policy's own tokens."""
    import torch

    own = [part.labels[:, 1:] != IGNORED for part in passes]
    read = [(part.mask[:, 1:] == 1) & ~mine for part, mine in zip(passes, own, strict=True)]
    own_tokens, read_tokens = (sum(int(chosen.sum()) for chosen in kind) for kind in (own, read))
    total, right = 0.0, 0
    for part, mine, others in zip(passes, own, read, strict=True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=has_bf16_instructions()):
            hidden = model.model(input_ids=part.ids, attention_mask=part.mask).last_hidden_state[:, :-1]
            loss, hits = _token_loss(model, hidden, part.ids[:, 1:], mine)
            total, right = total + loss.item() / own_tokens, right + hits
            loss = loss / own_tokens
            if reading_weight:
                loss = loss + reading_weight * _token_loss(model, hidden, part.ids[:, 1:], others)[0] / read_tokens
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return total, right / own_tokens


def _token_loss(
    model: Any, hidden: torch.Tensor, targets: torch.Tensor, chosen: torch.Tensor
) -> tuple[torch.Tensor, int]:
    """Summed cross-entropy of the chosen targets, and how many of them are predicted right.

    `hidden` is [rows, length, width], `targets` and `chosen` [rows, length].
    """
    import torch

    places = chosen.flatten().nonzero()[:, 0]
    filled = torch.nn.functional.pad(places, (0, _up_to_multiple(len(places), TARGET_MULTIPLE) - len(places)))
    logits = model.lm_head(hidden.flatten(0, 1)[filled]).float()[: len(places)]
    wanted = targets.flatten()[places]
    loss = torch.nn.functional.cross_entropy(logits, wanted, reduction="sum")
    return loss, int((logits.argmax(-1) == wanted).sum())


def _up_to_multiple(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _schedule(step: int, steps: int) -> float:
    return min(1.0, step / min(100, steps)) * max(FINAL_RATE, 1 - step / steps)


def _parallel_share(world: World, agent: AgentConfig, config: WarmStartConfig, seed: int) -> float:
    stream = demonstrations(world, config.parallel_share, agent.top_k, random.Random(f"{seed}/share"))
    both = [d.parallel for d in islice(stream, 2000) if any(len(level) > 1 for level in d.draft.levels)]
    return sum(both) / len(both)
