"""What the study found, in three sentences for each data set: LLM calls, accuracy, and accuracy without the limits.

A sentence says that one arm does better than the other only where the interval excludes that they do alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from parallelsearch.evaluation import seed_bootstrap
from parallelsearch.evaluation.budget_sweep import ALL, SEVERAL, by_parts
from parallelsearch.evaluation.intervals import NOTHING, Estimate
from parallelsearch.records import Structure
from parallelsearch.report.study import Study


@dataclass(frozen=True)
class Compared:
    """Two arms' mean figures over the same questions and seeds, the difference (ours minus theirs) and,
    of LLM calls, the ratio."""

    ours: float
    theirs: float
    difference: Estimate
    ratio: Estimate
    questions: int
    seeds: int


def findings(study: Study) -> list[str]:
    """The sentences; a single one where no arm is compared with the baseline."""
    arm, baseline = study.treatment, study.settings.baseline
    if arm is None:
        return [f"No trained arm is compared with the baseline {baseline}, so nothing was found."]
    sentences: list[str] = []
    for dataset in study.datasets:
        parallel = questions_of(study.of_dataset(dataset))
        if parallel is None:
            continue
        where = f"On {dataset}, " if len(study.datasets) > 1 else ""
        sentences += [
            _capital(where + _calls(study, arm, parallel[ALL])),
            _capital(where + _accuracy(study, arm, parallel, "under the study's own limits")),
            _capital(where + _without_limits(study, arm, dataset)),
        ]
    return sentences or ["No parallel question was answered, so nothing was found."]


def questions_of(episodes: pd.DataFrame) -> dict[str, pd.DataFrame] | None:
    """The parallel questions by number of parts (budget_sweep.by_parts), failures left out; None: there are none."""
    counted = episodes[~episodes["failed"]]
    found = {hops: group for structure, hops, group in by_parts(counted) if structure == Structure.PARALLEL}
    return found or None


def compared(study: Study, arm: str, episodes: pd.DataFrame, column: str) -> Compared | None:
    """`arm` against the baseline over the questions and seeds that both answered; None where there is none."""
    evaluation = study.settings.evaluation
    arms = dict(list(episodes.groupby("arm", sort=False)))
    if arm not in arms or study.settings.baseline not in arms:
        return None
    ours, theirs = seed_bootstrap.paired(arms[arm], arms[study.settings.baseline], column)
    if not ours.size:
        return None
    sizes = evaluation.confidence, evaluation.bootstrap_samples
    difference = seed_bootstrap.mean(ours - theirs, *sizes)
    ratio = seed_bootstrap.ratio(ours, theirs, *sizes) if column == "llm_calls" else NOTHING
    means = [seed_bootstrap.mean(values, *sizes).value for values in (ours, theirs)]
    return Compared(means[0], means[1], difference, ratio, ours.shape[1], ours.shape[0])


def _calls(study: Study, arm: str, episodes: pd.DataFrame) -> str:
    found = compared(study, arm, episodes, "llm_calls")
    if found is None:
        return f"{arm} and {study.settings.baseline} answered no parallel question both."
    numbers = (
        f"{found.ours:.2f} against {found.theirs:.2f} a question, a ratio of {_interval(found.ratio, 2)} and a"
        f" difference of {_interval(found.difference, 2)}"
    )
    sure = _excludes(found.difference, 0) and _excludes(found.ratio, 1)
    direction = ("fewer" if found.difference.value < 0 else "more") if sure else ""
    return _sentence(study, arm, found, "on parallel questions", "makes", direction, "LLM calls", numbers)


def _accuracy(study: Study, arm: str, parallel: dict[str, pd.DataFrame], limits: str) -> str:
    parts = SEVERAL if SEVERAL in parallel else ALL
    asked = "parallel questions of three and more parts" if parts == SEVERAL else "parallel questions"
    found = compared(study, arm, parallel[parts], "em")
    if found is None:
        return f"{limits} {arm} and {study.settings.baseline} answered none of the same {asked}."
    numbers = f"EM {found.ours:.3f} against {found.theirs:.3f}, a difference of {_interval(found.difference, 3)}"
    direction = ("more" if found.difference.value > 0 else "fewer") if _excludes(found.difference, 0) else ""
    return _sentence(study, arm, found, f"{limits}, on {asked}", "gives", direction, "right answers", numbers)


def _without_limits(study: Study, arm: str, dataset: str) -> str:
    episodes = study.unlimited
    chosen = None if episodes is None else questions_of(episodes[episodes["dataset"] == dataset])
    if chosen is None:
        return "accuracy without the limits was not measured (evaluation.budgets asks for it)."
    return _accuracy(study, arm, chosen, "without these limits")


def _sentence(
    study: Study, arm: str, found: Compared, where: str, verb: str, direction: str, what: str, numbers: str
) -> str:
    baseline, times = study.settings.baseline, f" and {found.seeds} seeds" if found.seeds > 1 else ""
    said = f"{arm} {verb} {direction} {what} than {baseline}"
    if not direction:
        said = f"no difference in {what} was found between {arm} and {baseline}"
    return f"{where} {said}: {numbers} ({found.questions} questions{times})."


def _interval(estimate: Estimate, decimals: int) -> str:
    return f"{estimate.value:.{decimals}f} [{estimate.low:.{decimals}f}, {estimate.high:.{decimals}f}]"


def _excludes(estimate: Estimate, value: float) -> bool:
    return estimate.low > value or estimate.high < value


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
