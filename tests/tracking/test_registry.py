"""The model registry after collections: one version a policy, and `best` on the one with the highest exact match."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from real_study import TRACKING as SETTINGS
from safetensors.numpy import save_file

from parallelsearch.evaluation.episodes import read_rows
from parallelsearch.files import read_json
from parallelsearch.plan.paths import Results
from parallelsearch.tracking import registry
from parallelsearch.tracking.collect import collect
from parallelsearch.tracking.results import find
from parallelsearch.tracking.store import Store


def write_policy(results: Results, arm: str, value: float) -> Path:
    folder = results.train(arm, 0) / "policy"
    folder.mkdir(exist_ok=True)
    save_file({"weight": np.full(4, value, dtype=np.float32)}, folder / "model.safetensors")
    return folder


def test_a_trained_policy_becomes_a_version_once(results: Results, store: Store) -> None:
    folder = write_policy(results, "parallelsearch", 1.0)
    first = collect(results.root, SETTINGS)
    assert first["best_versions"] == {"parallelsearch": "1"}  # the other arms have no weights here
    version = store.client.get_model_version_by_alias("parallelsearch", registry.BEST)
    assert results.root / version.tags["policy"] == folder
    run = store.client.get_run(version.run_id)
    assert version.source == f"{run.info.artifact_uri}/policy"
    assert store.place.artifacts is not None
    pointer = read_json(store.place.artifacts / urlsplit(version.source).path.lstrip("/") / registry.POINTER)
    assert Path(pointer["results"], pointer["policy"]) == folder.resolve()
    assert version.run_id == next(run["run_id"] for run in first["runs"] if run["arm"] == "parallelsearch")
    rows = read_rows(results.episodes("parallelsearch", 0, "hotpotqa.dev"), ["em"])
    em = [row["em"] for row in rows]
    assert float(version.tags["em"]) == pytest.approx(sum(em) / len(em), abs=5e-5)
    assert version.tags["seed"] == "0"
    assert store.client.get_registered_model("parallelsearch").description.startswith("The four-part reward")
    record = next(record for record in find(results.root) if record.arm == "parallelsearch")
    registry.register(store, [(record, version.run_id)])
    assert len(store.client.search_model_versions("name = 'parallelsearch'")) == 1
    write_policy(results, "parallelsearch", 2.0)
    assert registry.register(store, [(record, version.run_id)]) == {"parallelsearch": "2"}  # as good, and newer


def test_best_is_the_highest_exact_match(results: Results, store: Store) -> None:
    store.client.create_registered_model("an-arm")
    run = store.client.create_run(store.experiment_id)
    for em in ("0.5000", "0.9000", "0.7000"):
        store.client.create_model_version("an-arm", "file:///nowhere", run_id=run.info.run_id, tags={"em": em})
    assert registry._point_to_best(store, "an-arm") == "2"
    assert store.client.get_model_version_by_alias("an-arm", registry.BEST).version in ("2", 2)


def test_an_unfinished_arm_is_not_registered(results: Results, store: Store) -> None:
    write_policy(results, "parallelsearch", 1.0)
    (results.train("parallelsearch", 0) / "done.json").unlink()
    assert registry.register(store, [(record, "no run") for record in find(results.root)]) == {}
