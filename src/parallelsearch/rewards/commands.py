"""`parallelsearch score`: rewards of stored transcripts, one JSON object a line in, one a line out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from parallelsearch.agent.tags import SEARCH_R1, TAG_SETS, Tags
from parallelsearch.config import SEMANTICS, AgentConfig, ArmConfig, RewardConfig, TrainingConfig
from parallelsearch.config_files import from_json, validated
from parallelsearch.errors import ConfigError, DataError
from parallelsearch.records import Action, Question, Structure
from parallelsearch.titles import page_title

if TYPE_CHECKING:
    from parallelsearch.questions.row import Row

app = typer.Typer()

NO_MULTI_HOP = "na"  # the published code's type of questions that need one look-up


@app.command()
def score(
    file: Annotated[Path, typer.Argument(help="JSON lines, plain or gzip, to score.")],
    semantics: Annotated[
        str | None, typer.Option(help=f"{', '.join(get_args(SEMANTICS))} (default: that of --settings).")
    ] = None,
    settings: Annotated[str, typer.Option(help="Settings of the section reward, as JSON.")] = "{}",
    tags: Annotated[str, typer.Option(help="Tags of the transcripts: search_r1 or research.")] = "search_r1",
) -> None:
    """Score transcripts.

    Every line of FILE holds question, golden_answers, transcript (what followed the prompt, tags and information blocks
    included) and structure (parallel, sequential, single, mixed, other) or type (comparison, bridge, ... as in any of
    the data sets, or na); stepsearch also reads supporting_titles. The scores go to stdout in the same order.
    """
    from parallelsearch.questions.rows import read_rows

    weights = from_json(RewardConfig, settings, "score --settings")
    if semantics is not None:
        weights = validated(RewardConfig, {**weights.model_dump(), "semantics": semantics}, "score")
    steps = weights.stepsearch
    if weights.semantics == "stepsearch" and (steps.information_gain or steps.redundancy_penalty):
        raise ConfigError(
            "score: the semantics stepsearch rewards what each search retrieved, and a transcript holds only what was"
            " shown of it; set stepsearch.information_gain and stepsearch.redundancy_penalty to false in --settings."
        )
    agent = validated(AgentConfig, {"tags": tags}, "score")
    validated(ArmConfig, {"name": "score", "agent": agent, "reward": weights, "training": TrainingConfig()}, "score")
    for scores in [score_row(row, weights, TAG_SETS[agent.tags]) for row in read_rows(file)]:
        typer.echo(json.dumps(scores))


def score_row(row: Row, weights: RewardConfig, tags: Tags = SEARCH_R1) -> dict[str, Any]:
    """The scores of one transcript. A field that is missing or of the wrong kind is a DataError with file and line."""
    from parallelsearch.agent.transcript import parse_transcript
    from parallelsearch.answers import exact_match, f1_score
    from parallelsearch.rewards.compose import score as reward

    question = _question(row)
    episode = parse_transcript(question, _transcript(row), tags)
    return {
        "em": exact_match(episode.answer, question.golden_answers),
        "f1": f1_score(episode.answer, question.golden_answers),
        "answer": episode.answer,
        "searches": episode.searches,
        "sub_queries": [
            [sub_query.text for sub_query in turn.sub_queries] for turn in episode.turns if turn.action is Action.SEARCH
        ],
        "decomposed": episode.decomposed,
        "well_formed": episode.well_formed,
        "reward": {name: round(value, 10) for name, value in reward(episode, question, weights).as_dict().items()},
    }


def _question(row: Row) -> Question:
    return Question(
        qid=str(row.index),
        dataset="",
        split="",
        text=row.text("question"),
        golden_answers=_golden_answers(row),
        type=row.optional_text("type") or "",
        structure=_structure(row),
        hops=row.whole_number("hops"),
        supporting_titles=tuple(map(page_title, row.texts("supporting_titles", required=False))),
    )


def _golden_answers(row: Row) -> tuple[str, ...]:
    """The golden answers; null among them is left out, and an empty list is scored (nothing matches it)."""
    values = row.fields.get("golden_answers")
    if not isinstance(values, list):
        return tuple(row.texts("golden_answers"))
    if not all(isinstance(value, str | None) for value in values):
        raise row.refusal("field 'golden_answers' is not a list of texts")
    return tuple(value for value in values if value is not None)


def _transcript(row: Row) -> str:
    """The transcript; unlike any other text, it may be empty."""
    value = row.fields.get("transcript")
    if not isinstance(value, str):
        state = "missing" if value is None else f"{type(value).__name__}, not text"
        raise row.refusal(f"field 'transcript' is {state}")
    return value


def _structure(row: Row) -> Structure:
    from parallelsearch.questions.structure import structure_of_type

    name = row.optional_text("structure")
    if name is not None:
        allowed = [structure.value for structure in Structure]
        if name not in allowed:
            raise row.refusal(f"structure '{name}' is unknown; known: {', '.join(allowed)}", "correct that row")
        return Structure(name)
    kind = row.optional_text("type")
    if kind is None:
        raise row.refusal("neither 'structure' nor 'type' is given", "add one of them")
    if kind == NO_MULTI_HOP:
        return Structure.SINGLE
    try:
        return structure_of_type(kind)
    except DataError as error:
        raise DataError(f"{row.place}: {error}") from None
