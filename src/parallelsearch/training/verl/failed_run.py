"""failed.json: the mark of a run that was ended early, and what the next `parallelsearch train` makes of it."""

from __future__ import annotations

import math
from pathlib import Path

from parallelsearch.errors import TrainingError
from parallelsearch.files import read_json, write_json
from parallelsearch.runs.checkpoints import Checkpoints
from parallelsearch.training.process.guard import Verdict
from parallelsearch.training.verl.policy_export import export_policy

FAILED = "failed.json"
LAST_GOOD = "policy-last-good"


def end_run(run: Path, checkpoints: Checkpoints, verdict: Verdict) -> TrainingError:
    """Keeps and exports the last checkpoint before the trouble, writes failed.json and returns the error to raise.

    No job may be writing any more. Checkpoints of the first bad step and later are removed, and such as hold no policy.
    """
    good = checkpoints.clean(before=verdict.first_bad_step)
    while good:
        try:
            export_policy(checkpoints.policy(good), run / LAST_GOOD)
            break
        except TrainingError:  # its weights were spoilt before any figure showed it
            good = checkpoints.clean(before=good)
    write_json(
        run / FAILED,
        {
            "kind": verdict.kind,
            "reason": verdict.reason,
            "step": verdict.step,
            "first_bad_step": verdict.first_bad_step,
            # JSON knows no NaN
            "values": {key: value if math.isfinite(value) else str(value) for key, value in verdict.values.items()},
            "last_good_step": good or None,
            "policy": LAST_GOOD if good else None,
        },
    )
    kept = f"{run / LAST_GOOD} is the policy of step {good}" if good else "no checkpoint was saved before that"
    next_step = (
        "repair it and start the same command again, which goes on from there"
        if verdict.kind == "infrastructure"
        else "change the arm's settings, or widen training.guard where the run was healthy"
    )
    return TrainingError(f"{run}: {verdict.reason}; {kept}; {next_step}.")


def export_last(checkpoints: Checkpoints, step: int, target: Path) -> None:
    """Exports the policy of a run's last checkpoint to `target`.

    One of which no policy can be made is removed, so that the same command makes it once more: TrainingError.
    """
    try:
        export_policy(checkpoints.policy(step), target)
    except TrainingError as error:
        left = checkpoints.clean(before=step)
        raise TrainingError(f"{error} That checkpoint is removed: the same command goes on from step {left}.") from None


def clear_failure(run: Path, force: bool = False) -> None:
    """Before a run is gone on with: removes the mark of a failure of the infrastructure; another is a TrainingError.

    The same settings and seed would most likely diverge again. With `force` the run goes on from its last good
    checkpoint nevertheless (from the start, where there is none).
    """
    if not (run / FAILED).exists():
        return
    failed = read_json(run / FAILED)
    if failed["kind"] != "infrastructure" and not force:
        raise TrainingError(
            f"{run / FAILED}: the run was ended because {failed['reason']}; equal settings and seed would most likely"
            f" end there again: change the arm's settings, delete {run} to train anew, or go on with --force from step"
            f" {failed['last_good_step'] or 0}."
        )
    (run / FAILED).unlink()
