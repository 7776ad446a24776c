"""The model registry: one registered model an arm, one version a trained policy, the alias `best` on the best of them.

A version's artifact, policy.json, says where in the results folder the policy lies; its weights are not copied. Best is
the highest exact match, over all its episodes, among the arm's policies that the registry holds. A store that studies
share has one registered model for each experiment and arm: `EXPERIMENT.ARM`.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parallelsearch.evaluation import metrics
from parallelsearch.files import sha256
from parallelsearch.tracking.results import ArmResult
from parallelsearch.tracking.store import Store, log_artifact

BEST = "best"
POINTER = "policy.json"
_WEIGHTS, _SEED, _EM, _POLICY = "weights_sha256", "seed", "em", "policy"


def register(store: Store, records: Iterable[tuple[ArmResult, str]], shared: bool = False) -> dict[str, str]:
    """Brings the registry up to date with complete trained arms (with their run ids); returns arm -> best version.

    A policy that is registered with the same run and weights is not registered again. `shared`: the store is not the
    study's own.
    """
    best: dict[str, str] = {}
    for result, run_id in records:
        weights = _weights(result)
        if weights is not None:
            name = re.sub(r"[/:]", "_", f"{store.experiment}.{result.arm}") if shared else result.arm
            _register_one(store, name, result, run_id, weights)
            best[result.arm] = _point_to_best(store, name)
    return best


def _weights(result: ArmResult) -> Path | None:
    """The weights of a complete trained arm; None for anything else, or where the policy was moved away."""
    if result.training is None or not result.complete:
        return None
    path = result.training.folder / str(result.training.done.get("policy", "policy")) / "model.safetensors"
    return path if path.is_file() else None


def _register_one(store: Store, name: str, result: ArmResult, run_id: str, weights: Path) -> None:
    checksum = sha256(weights)
    if not store.client.search_registered_models(f"name = '{name}'"):
        _create_model(store, name, str(result.config.get("description", "")))
    if _keep_one(store, name, run_id, checksum):
        return
    episodes = metrics.load(result.episodes)
    tags: dict[str, Any] = {
        _WEIGHTS: checksum,
        _SEED: str(result.seed),
        _EM: f"{episodes['em'].mean():.4f}",
        _POLICY: weights.parent.relative_to(result.root).as_posix(),
        "config_sha256": result.config_sha256,
    }
    source = _write_pointer(store, run_id, {"results": str(result.root.resolve()), **tags})
    store.client.create_model_version(name, source, run_id=run_id, tags=tags, await_creation_for=0)
    _keep_one(store, name, run_id, checksum)


def _keep_one(store: Store, name: str, run_id: str, checksum: str) -> bool:
    """Whether the run's weights are registered; of several such versions (see runs.create_run) the first stays."""
    same = [v for v in _versions(store, name) if v.run_id == run_id and v.tags.get(_WEIGHTS) == checksum]
    for version in sorted(same, key=lambda version: int(version.version))[1:]:
        with _unless("RESOURCE_DOES_NOT_EXIST"):
            store.client.delete_model_version(name, str(version.version))
    return bool(same)


@contextmanager
def _unless(code: str) -> Iterator[None]:
    """Passes over MLflow's error `code`: another collection was faster."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if error.error_code != code:
            raise


def _create_model(store: Store, name: str, description: str) -> None:
    with _unless("RESOURCE_ALREADY_EXISTS"):
        store.client.create_registered_model(name, description=description)


def _write_pointer(store: Store, run_id: str, pointer: dict[str, str]) -> str:
    """Stores policy.json among the run's artifacts; returns the folder it is in.

    A server refuses versions whose source is a folder outside the run's artifacts.
    """
    run = store.client.get_run(run_id)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / POINTER
        path.write_text(json.dumps(pointer, indent=2) + "\n", encoding="utf-8")
        log_artifact(store, run, path, _POLICY)
    return f"{run.info.artifact_uri}/{_POLICY}"


def _point_to_best(store: Store, name: str) -> str:
    """Sets the alias; again as long as other collections register better versions meanwhile."""
    best = ""
    while best != (found := _best(store, name)):
        best = found
        with _unless("RESOURCE_DOES_NOT_EXIST"):  # the version has just gone: another is the best
            store.client.set_registered_model_alias(name, BEST, best)
    return best


def _best(store: Store, name: str) -> str:
    best = max(_versions(store, name), key=lambda version: (float(version.tags[_EM]), int(version.version)))
    return str(best.version)


def _versions(store: Store, name: str) -> list[Any]:
    return [v for v in store.client.search_model_versions(f"name = '{name}'") if _EM in v.tags]
