"""The report: one HTML file with findings, tables, figures (SVG), a question answered both ways, and all episodes.

Everything that a model or a corpus wrote is escaped by the template engine, or lies in the compressed data that the
page's script turns into text nodes; controls of terminals and of writing direction are written out. Beside that the
page's own policy (Content-Security-Policy) lets no script run but its own, and nothing be loaded. The page needs no
network, no other file.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from parallelsearch import __version__
from parallelsearch.errors import DataError
from parallelsearch.evaluation.metrics import STRUCTURES
from parallelsearch.report import examples, figures, tables
from parallelsearch.report.drawing import Drawing, rendered
from parallelsearch.report.episode_data import episode_data
from parallelsearch.report.findings import findings
from parallelsearch.report.published import PUBLISHED_DIR, read_all_published
from parallelsearch.report.study import Study, describe
from parallelsearch.report.table import Table
from parallelsearch.visible import visible

TEMPLATE = "page.html"
GLANCE = "gain"  # the figure beside the findings, before any table


def render(study: Study, published: Path = PUBLISHED_DIR) -> str:
    """The whole page as HTML text."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("parallelsearch.report", "."),
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shown_tables, shown_drawings = _tables(study, published), _drawings(study)
    contrast = examples.contrast(study)
    episodes = episode_data(study, keep=[contrast.parallel.key[2:]] if contrast else [])
    script = _own_text("page.js")
    return environment.get_template(TEMPLATE).render(
        style=_own_text("page.css"),
        script=script,
        script_sha256=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
        version=__version__,
        study=study,
        summary=_summary(study),
        tables=shown_tables,
        findings=findings(study),
        glance=[(drawing, _embedded(drawing)) for drawing in shown_drawings if drawing.name == GLANCE],
        figures=[(drawing, _embedded(drawing)) for drawing in shown_drawings if drawing.name != GLANCE],
        contrast=contrast,
        episodes=episodes,
        place=lambda shown: episodes.places[shown.key],
        choices=_choices(study),
        provenance=_provenance(study),
    )


def _tables(study: Study, published: Path) -> list[Table]:
    names = [f"{dataset}_{kind}" for dataset in study.datasets for kind in ("by_structure", "comparison")]
    if len(study.datasets) > 1:
        names.insert(0, "em_by_dataset")
    known = {subset.dataset for numbers in read_all_published(published) for subset in numbers.subsets.values()}
    names += [f"{dataset}_published" for dataset in study.datasets if dataset in known]
    if study.run_folders:
        names += ["ablation_grid", "training_summary"]
    if study.episodes["seed"].nunique() > 1:
        names += [f"{dataset}_over_seeds" for dataset in study.datasets]
    names += [f"{dataset}_by_parts" for dataset in study.datasets]
    return [tables.build(name, study, published) for name in names]


def _drawings(study: Study) -> list[Drawing]:
    """The figures that the given files allow; one without data is left out."""
    drawings = []
    for name in figures.FIGURES:
        try:
            drawings.append(figures.build(name, study))
        except DataError:
            continue
    return drawings


def _summary(study: Study) -> list[tuple[str, str]]:
    episodes = study.episodes
    sets = sorted({f"{dataset}.{split}" for dataset, split in zip(episodes["dataset"], episodes["split"], strict=True)})
    complete = sum(run.complete for run in study.runs)
    return [
        ("Arms", ", ".join(study.arms)),
        ("Seeds", ", ".join(str(seed) for seed in sorted(episodes["seed"].unique()))),
        ("Question sets", ", ".join(sets)),
        ("Episodes", f"{len(episodes)}, of which {int(episodes['failed'].sum())} infrastructure failures"),
        ("Training runs", f"{len(study.runs)}, of which {complete} complete"),
        ("Training time", f"{sum(run.done.get('seconds', 0) for run in study.runs) / 60:.1f} min over all runs"),
        ("Baseline", study.settings.baseline),
    ]


def _provenance(study: Study) -> list[tuple[str, str, str]]:
    """(arm and seed, policy checksum, everything else) of every episodes file."""
    rows = []
    for path, origin in study.provenance.items():
        rows.append((str(Path(*path.parts[-4:-1])), origin.policy_sha256[:12] or "none", describe(origin)))
    return rows


def _choices(study: Study) -> list[tuple[str, str, list[str]]]:
    """(label, field, values) of every filter; one with a single value is left out."""
    episodes = study.episodes
    choices = [
        ("Arm", "arm", study.arms),
        ("Data set", "dataset", study.datasets),
        ("Seed", "seed", [str(seed) for seed in sorted(episodes["seed"].unique())]),
        ("Structure", "structure", [name for name in STRUCTURES if name in set(episodes["structure"])]),
        ("Answer", "verdict", ["right", "wrong", "failed"]),
        ("Decomposed", "decomposed", ["yes", "no"]),
    ]
    return [choice for choice in choices if len(choice[2]) > 1] + [("Beside", "beside", study.arms)]


def _embedded(drawing: Drawing) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(rendered(drawing, "svg")).decode("ascii")


def _shown(value: Any) -> Any:
    """What the template prints of a value; the engine escapes it after that."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _own_text(name: str) -> Any:
    """A file of this package, marked as safe: it holds nothing that a model wrote."""
    return Markup(files("parallelsearch.report").joinpath(name).read_text(encoding="utf-8"))
