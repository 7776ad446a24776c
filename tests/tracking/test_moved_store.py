"""A results folder that was moved shows its artifacts through a server, for no location in it is a path."""

from __future__ import annotations

from pathlib import Path

import mlflow.artifacts
import pytest
import real_study
from collectors import small_study
from mlflow import MlflowClient
from mlflow_server import mlflow_server

from parallelsearch.config import TrackingConfig
from parallelsearch.files import read_json
from parallelsearch.tracking.collect import collect
from parallelsearch.tracking.store import create

pytestmark = pytest.mark.slow


def test_a_moved_store_shows_its_artifacts_and_is_gone_on_with(
    collected_once: real_study.RealStudy, tmp_path: Path
) -> None:
    settings = TrackingConfig(traces_per_run=1)
    results = small_study(collected_once.results.root, tmp_path / "before" / "results")
    create(results.mlflow(), settings)
    first = collect(results.root, settings)

    moved = results.root.parent.rename(tmp_path / "after") / "results"
    folder = moved / "mlflow"
    with mlflow_server(f"sqlite:///{folder / 'mlflow.db'}", folder / "artifacts", tmp_path) as server:
        client = MlflowClient(server.address)
        run_id = first["runs"][0]["run_id"]
        assert {entry.path for entry in client.list_artifacts(run_id, "run")} == {
            "run/config.yaml",
            "run/done.json",
            "run/metrics.jsonl",
        }
        curves = client.download_artifacts(run_id, "run/metrics.jsonl", str(tmp_path))
        assert (
            Path(curves).read_bytes() == (moved / "train" / "parallelsearch" / "seed0" / "metrics.jsonl").read_bytes()
        )
        table = client.download_artifacts(first["study_run_id"], "tables/hotpotqa_by_structure.csv", str(tmp_path))
        assert Path(table).read_text() == "arm,seed\n0\n"

        version = client.get_model_version_by_alias("parallelsearch", "best")
        pointer = mlflow.artifacts.download_artifacts(
            artifact_uri=f"{version.source}/policy.json", tracking_uri=server.address, dst_path=str(tmp_path)
        )
        assert (moved / read_json(Path(pointer))["policy"] / "model.safetensors").is_file()

    assert {run["action"] for run in collect(moved, settings)["runs"]} == {"unchanged"}
