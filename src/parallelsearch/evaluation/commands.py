"""`parallelsearch evaluate`, `judge` and `ask`: a policy answers, a language model judges."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from parallelsearch.config import AgentConfig, EvaluationConfig, RewardConfig, Section
from parallelsearch.config_files import from_json
from parallelsearch.records import Episode, Question, Structure, Turn
from parallelsearch.visible import visible

app = typer.Typer(no_args_is_help=True)


class EvaluateSettings(Section):
    """What `evaluate` reads of a study."""

    agent: AgentConfig = AgentConfig()
    reward: RewardConfig | None = None
    evaluation: EvaluationConfig = EvaluationConfig()


@app.command()
def evaluate(
    out: Annotated[Path, typer.Argument(help="episodes.parquet to write.")],
    arm: Annotated[str, typer.Option(help="Name of the arm.")],
    seed: Annotated[int, typer.Option(help="Seed of the arm.")],
    policy: Annotated[str, typer.Option(help="Folder of a run or of a model, or MODEL[@REVISION] of the hub.")],
    index: Annotated[Path, typer.Option(help="Index folder.")],
    questions: Annotated[Path, typer.Option(help="Question file.")],
    settings: Annotated[str, typer.Option(help="JSON object with agent, reward and evaluation.")] = "{}",
) -> None:
    """Every question is answered once; every episode is one row."""
    import asyncio

    from rich.progress import Progress

    from parallelsearch.errors import ConfigError
    from parallelsearch.evaluation.answering import answer_all, without_last_batches
    from parallelsearch.evaluation.engines import open_engine
    from parallelsearch.evaluation.episodes import write_episodes
    from parallelsearch.evaluation.scoring import score_all
    from parallelsearch.questions.store import read_questions
    from parallelsearch.retrieval.opening import open_retriever

    config = from_json(EvaluateSettings, settings, "evaluate --settings")
    asked = without_last_batches(read_questions(questions), config.evaluation.drop_last)
    if not asked:
        raise ConfigError(
            f"evaluation.drop_last is {config.evaluation.drop_last}, more than {questions} has; lower it."
        )
    if config.evaluation.limit:
        asked = asked[: config.evaluation.limit]
    retriever = open_retriever(index)
    engine, model = open_engine(config.evaluation, policy)
    with Progress(transient=True) as progress:
        task = progress.add_task(f"{arm}, seed {seed}", total=len(asked))
        episodes = asyncio.run(
            answer_all(
                asked,
                engine,
                retriever,
                config.agent,
                temperature=config.evaluation.temperature,
                seed=seed,
                in_flight=config.evaluation.batch_size,
                finished=lambda episode: progress.advance(task),
            )
        )
    engine.close()
    scored = score_all(episodes, config.reward, retriever.corpus)
    provenance = _provenance(model, index, questions, config)
    write_episodes(out, scored, arm=arm, seed=seed, provenance=provenance)
    failures = sum(episode.stop_reason.is_infrastructure_failure for episode, _ in scored)
    typer.echo(f"{out}: {len(scored)} episodes" + (f", {failures} of them failed" if failures else ""))


@app.command()
def judge(
    out: Annotated[Path, typer.Argument(help="judgements.parquet to write.")],
    episodes: Annotated[Path, typer.Argument(help="episodes.parquet to judge.")],
    store: Annotated[Path, typer.Option(help="SQLite file of replies; nothing in it is asked again.")],
    settings: Annotated[str, typer.Option(help="JSON object with the keys of evaluation.judge.")],
) -> None:
    """A language model judges every answer; writes one row an episode."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from rich.progress import Progress

    from parallelsearch.config import JudgeConfig
    from parallelsearch.evaluation.episodes import read_episodes, read_rows
    from parallelsearch.evaluation.judge import judge_episodes
    from parallelsearch.evaluation.metrics import EPISODE_KEY
    from parallelsearch.files import replacing

    config = from_json(JudgeConfig, settings, "judge --settings")
    answered = [episode for episode, _ in read_episodes(episodes)]
    with Progress(transient=True) as progress:
        task = progress.add_task(f"asking {config.model}", total=None)
        verdicts = judge_episodes(answered, config, store, lambda: progress.advance(task))
    rows = [{**row, "judged": verdict} for row, verdict in zip(read_rows(episodes, EPISODE_KEY), verdicts, strict=True)]
    types = {"seed": pa.int64(), "judged": pa.bool_()}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in (*EPISODE_KEY, "judged")])
    with replacing(out) as partial:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), partial)
    right = sum(verdict is True for verdict in verdicts)
    unread = sum(verdict is None for verdict in verdicts)
    typer.echo(f"{out}: {right} of {len(verdicts)} judged correct" + (f", {unread} not judged" if unread else ""))


@app.command()
def ask(
    question: Annotated[str, typer.Argument(help="The question.")],
    policy: Annotated[str, typer.Option(help="Folder of a run or of a model, or MODEL[@REVISION] of the hub.")],
    index: Annotated[Path, typer.Option(help="Index folder.")],
    temperature: Annotated[float, typer.Option(min=0, help="0: greedy.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the sampling.")] = 0,
    settings: Annotated[str, typer.Option(help="JSON object with the keys of the section agent.")] = "{}",
    engine: Annotated[str, typer.Option(help="hf, vllm, or openai: the model of a server.")] = "hf",
    url: Annotated[str, typer.Option(help="The server's address, such as http://127.0.0.1:8000/v1 (openai).")] = "",
    model: Annotated[str, typer.Option(help="Name of the model there (openai).")] = "",
) -> None:
    """Answers one question; every turn is printed as it happens."""
    import asyncio

    from parallelsearch.config_files import validated
    from parallelsearch.engines.engine import Sampling
    from parallelsearch.evaluation.engines import open_engine
    from parallelsearch.retrieval.opening import open_retriever
    from parallelsearch.strategies.strategy import answer

    agent = from_json(AgentConfig, settings, "ask --settings")
    server = {"url": url, "model": model} if url or model else None
    values = {"engine": engine, "server": server, "batch_size": 1}
    (opened, _), retriever = open_engine(validated(EvaluationConfig, values, "ask"), policy), open_retriever(index)
    asked = Question("by-hand", "by-hand", "by-hand", question, (), "by-hand", Structure.OTHER)
    sampling = Sampling(temperature, seed=seed if temperature > 0 else None)
    episode = asyncio.run(answer(asked, opened, retriever, agent, sampling, on_turn=_print_turn))
    opened.close()
    typer.echo(visible(_outcome(episode)))


def _print_turn(turn: Turn) -> None:
    typer.secho(visible(turn.text.strip()), fg="cyan")  # a model or a passage must not steer the terminal
    if turn.observation:
        typer.echo(visible(turn.observation.strip()))
        typer.secho(
            f"[{len(turn.sub_queries)} sub-queries in one search, {turn.search_seconds:.3f} s;"
            f" generation {turn.generate_seconds:.3f} s]",
            dim=True,
        )


def _outcome(episode: Episode) -> str:
    found = episode.answer if episode.answer is not None else f"no answer ({episode.stop_reason})"
    error = f" {episode.error}" if episode.error else ""
    return (
        f"Answer: {found}{error}\n{episode.llm_calls} LLM calls, {episode.searches} searches,"
        f" {'decomposed' if episode.decomposed else 'not decomposed'}, {episode.seconds:.2f} s"
    )


def _protocol(evaluation: EvaluationConfig) -> dict[str, Any]:
    protocol: dict[str, Any] = {"temperature": evaluation.temperature, "engine": evaluation.engine}
    if evaluation.engine == "openai" and evaluation.server:
        protocol["model"] = evaluation.server.model
    return protocol | ({"drop_last": evaluation.drop_last} if evaluation.drop_last else {})


def _provenance(model: Path, index: Path, questions: Path, config: EvaluateSettings) -> Any:
    from parallelsearch.evaluation.episodes import Provenance
    from parallelsearch.files import read_json, sha256

    manifest = read_json(index / "manifest.json")
    # A server answers with weights of its own: `decoding` names its model.
    weights = [] if config.evaluation.engine == "openai" else sorted(model.glob("*.safetensors"))
    return Provenance(
        policy_sha256=sha256(weights[0]) if weights else "",
        index_sha256=manifest["sha256"],
        corpus_sha256=manifest["corpus"]["sha256"],
        questions_sha256=sha256(questions),
        top_k=config.agent.top_k,
        decoding=_protocol(config.evaluation),
        config=config.model_dump(),
        corpus=Path(manifest["corpus"]["path"]).name,
        index=manifest["kind"],
    )
