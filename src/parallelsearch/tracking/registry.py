"""The model registry: one registered model an arm, one version a trained policy, the alias `best` on the best of them.

A version points at the policy in the results folder; nothing is copied. Best is the highest exact match, over all its
episodes, among the arm's policies that the registry holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from parallelsearch.evaluation import metrics
from parallelsearch.files import sha256
from parallelsearch.tracking.results import ArmResult
from parallelsearch.tracking.store import Store

BEST = "best"
_WEIGHTS, _SEED, _EM = "weights_sha256", "seed", "em"


def register(store: Store, records: Iterable[tuple[ArmResult, str]]) -> dict[str, str]:
    """Brings the registry up to date with complete trained arms (with their run ids); returns arm -> best version.

    A policy that is registered with the same run and weights is not registered again.
    """
    best: dict[str, str] = {}
    for result, run_id in records:
        weights = _weights(result)
        if weights is not None:
            _register_one(store, result, run_id, weights)
            best[result.arm] = _point_to_best(store, result.arm)
    return best


def _weights(result: ArmResult) -> Path | None:
    """The weights of a complete trained arm; None for anything else, or where the policy was moved away."""
    if result.training is None or not result.complete:
        return None
    path = result.training.folder / str(result.training.done.get("policy", "policy")) / "model.safetensors"
    return path if path.is_file() else None


def _register_one(store: Store, result: ArmResult, run_id: str, weights: Path) -> None:
    checksum = sha256(weights)
    if not store.client.search_registered_models(f"name = '{result.arm}'"):
        description = str(result.config.get("description", ""))
        store.client.create_registered_model(result.arm, description=description)
    if any(v.run_id == run_id and v.tags.get(_WEIGHTS) == checksum for v in _versions(store, result.arm)):
        return
    episodes = metrics.load(result.episodes)
    tags: dict[str, Any] = {
        _WEIGHTS: checksum,
        _SEED: str(result.seed),
        _EM: f"{episodes['em'].mean():.4f}",
        "config_sha256": result.config_sha256,
    }
    store.client.create_model_version(result.arm, weights.parent.resolve().as_uri(), run_id=run_id, tags=tags)


def _point_to_best(store: Store, arm: str) -> str:
    versions = _versions(store, arm)
    best = max(versions, key=lambda version: (float(version.tags[_EM]), int(version.version)))
    store.client.set_registered_model_alias(arm, BEST, best.version)
    return str(best.version)


def _versions(store: Store, arm: str) -> list[Any]:
    return [v for v in store.client.search_model_versions(f"name = '{arm}'") if _EM in v.tags]
