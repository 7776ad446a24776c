"""`parallelsearch VERB`: every rule of the workflow, and a few things by hand.

The root only knows the verbs' names; the module behind a verb is imported when it is called, so that `--help` is fast
and a broken optional library stops only the verbs that need it. A user's mistake ends as one sentence on stderr and
exit code 1; its traceback appears with `parallelsearch --traceback VERB ...` or PARALLELSEARCH_DEBUG=1.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from parallelsearch import __version__
from parallelsearch.errors import UserError
from parallelsearch.machine.full_disk import NEXT_STEP, says_full

DEBUG = "PARALLELSEARCH_DEBUG"

# verb -> (module, one line of help). The module has a Typer named `app` that holds the verb or its sub-verbs, or, where
# it stands for several verbs, a function `mount(app)` that adds them.
VERBS: dict[str, tuple[str, str]] = {
    "doctor": ("parallelsearch.machine.doctor", "What this machine can run, what is missing, the next step."),
    "config": ("parallelsearch.schema", "Write the configuration's schema or the merged configuration."),
    "fetch": ("parallelsearch.downloads", "Download one registered file and check its SHA-256."),
    "geoworld": ("parallelsearch.geoworld.commands", "Generate the small encyclopedia and its questions."),
    "questions": ("parallelsearch.questions.commands", "Read a data set's own file into Questions."),
    "corpus": ("parallelsearch.corpus.commands", "Read a collection of passages."),
    "encoder": ("parallelsearch.retrieval.commands", "Prepare an encoder's weights."),
    "embed": ("parallelsearch.retrieval.commands", "Encode one shard of a corpus."),
    "embed-manifest": ("parallelsearch.retrieval.commands", "Check all shards and describe them."),
    "index": ("parallelsearch.retrieval.commands", "Build a search index."),
    "reranker": ("parallelsearch.retrieval.commands", "Prepare a cross-encoder's weights."),
    "retriever": ("parallelsearch.retrieval.commands", "Serve an index over HTTP, measure its recall."),
    "warm-start": ("parallelsearch.training.commands", "Train a small policy on demonstrations."),
    "policy": ("parallelsearch.training.commands", "Prepare a packaged language model; serve a policy."),
    "train": ("parallelsearch.training.commands", "Train one reward arm with veRL."),
    "evaluate": ("parallelsearch.evaluation.commands", "Let a policy answer a question set; writes the episodes."),
    "judge": ("parallelsearch.evaluation.commands", "Let a language model judge the answers."),
    "ask": ("parallelsearch.evaluation.commands", "Answer one question, turn by turn."),
    "score": ("parallelsearch.rewards.commands", "Score transcripts."),
    "track": ("parallelsearch.tracking.commands", "Collect results into MLflow."),
    "tables": ("parallelsearch.report.commands", "Tables from episodes."),
    "figures": ("parallelsearch.report.commands", "Figures from episodes and training metrics."),
    "findings": ("parallelsearch.report.commands", "What a study found, in a few sentences."),
    "report": ("parallelsearch.report.commands", "The report as one HTML page."),
}


def load_verb(verb: str) -> Any:
    """The command (or group of commands) behind `verb`; imports its module."""
    module = importlib.import_module(VERBS[verb][0])
    if hasattr(module, "mount"):
        area = typer.Typer()
        module.mount(area)
    else:
        area = module.app
    group = typer.main.get_group(area)
    command = group.commands.get(verb, group)
    command.name = verb
    return command


class LazyRoot(TyperGroup):
    """Lists verbs from the table above; loads the one that is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return TyperCommand(cmd_name, help=VERBS[cmd_name][1]) if cmd_name in VERBS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, load_verb(name) if name in VERBS else command, rest


app = typer.Typer(cls=LazyRoot, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"parallelsearch {__version__}")
        raise typer.Exit()


@app.callback()
def root(
    show_traceback: bool = typer.Option(False, "--traceback", help="Print the traceback of a user error, too."),
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Train search agents that look up the independent parts of a question in parallel, and measure what that gains."""
    if show_traceback:
        os.environ[DEBUG] = "1"


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one verb; exits 0, 1 after a user error (one sentence on stderr), 2 after a wrong command line,
    75 where a job was asked to end early and the same command goes on."""
    try:
        typer.main.get_command(app).main(args=arguments, prog_name="parallelsearch")
    except UserError as error:
        if os.environ.get(DEBUG):
            traceback.print_exc()
        print(f"parallelsearch: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        if not says_full(error):
            raise
        place = error.filename or "a file"
        print(f"parallelsearch: there is no room left for {place} ({error}); {NEXT_STEP}.", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
