"""The shipped configurations, the generated schemas, and how settings are merged."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from parallelsearch.config_files import arm_names, load_arm, load_study, merge, read_yaml, validate_study
from parallelsearch.errors import ConfigError
from parallelsearch.schema import FIX, SCHEMAS, app, render, schemas

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "config"
STUDIES = ["config", "smoke", "study", "paper"]


@pytest.mark.parametrize("name", ["config.schema.json", "arm.schema.json"])
def test_the_schemas_are_those_of_the_models(name: str) -> None:
    shipped = (ROOT / SCHEMAS / name).read_text(encoding="utf-8")
    assert shipped == render(schemas()[name]), f"{SCHEMAS / name} is out of date; run `{FIX}` and commit the result"


def test_an_edited_schema_is_refused_with_the_command_that_mends_it(tmp_path: Path) -> None:
    run = CliRunner().invoke
    assert run(app, ["schema", str(tmp_path)]).exit_code == 0
    assert run(app, ["schema", str(tmp_path), "--check"]).exit_code == 0
    path = tmp_path / "arm.schema.json"
    path.write_text(path.read_text().replace("lambda_d", "lambda_x"))
    refused = run(app, ["schema", str(tmp_path), "--check"]).exception
    assert isinstance(refused, ConfigError)
    assert str(path) in str(refused) and FIX in str(refused)
    run(app, ["schema", str(tmp_path)])
    assert run(app, ["schema", str(tmp_path), "--check"]).exit_code == 0


@pytest.mark.parametrize("study", STUDIES)
def test_a_shipped_study_is_valid_by_model_and_by_schema(study: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    overlay = CONFIG / f"{study}.yaml"
    assert set(load_study(overlay).arms) <= set(arm_names())
    merged = merge(read_yaml(CONFIG / "config.yaml"), read_yaml(overlay))
    jsonschema.validate(merged, schemas()["config.schema.json"])


@pytest.mark.parametrize("name", [path.stem for path in sorted((CONFIG / "arms").glob("*.yaml"))])
def test_a_shipped_arm_is_valid_described_and_by_schema(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    arm = load_arm(load_study(), name)
    assert arm.name == name and arm.description
    jsonschema.validate(read_yaml(CONFIG / "arms" / f"{name}.yaml"), schemas()["arm.schema.json"])


def test_a_study_changes_one_arm_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    paper = load_study(CONFIG / "paper.yaml")
    changed = load_arm(paper, "stepsearch").training
    assert (changed.actor_learning_rate, changed.critic_learning_rate) == (7e-7, 7e-6)  # arXiv 2505.15107
    assert (changed.batch_size, changed.mini_batch_size, changed.micro_batch_size) == (256, 64, 32)
    assert changed.sets == ["musique.train"]
    assert load_arm(paper, "stepsearch-no-key").training == changed
    kept = load_arm(paper, "parallelsearch").training
    assert (kept.actor_learning_rate, kept.critic_learning_rate, kept.batch_size) == (1e-6, 1e-5, 512)
    laptop = load_study()
    assert load_arm(laptop, "stepsearch").training == laptop.training.model_copy(update={"kl_coefficient": 0.001})


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"stepsaerch": {}}, ["arm_overrides", "'stepsaerch'", "stepsearch"]),
        ({"stepsearch": {"policy": {}}}, ["arm_overrides.stepsearch.policy", "training"]),
        ({"stepsearch": {"training": {"learning_rate": 1}}}, ["arm_overrides.stepsearch", "learning_rate"]),
        ({"otc": {"reward": {"otc": {"c": 0}}}}, ["arm_overrides.otc", "reward.otc.c", "0"]),
    ],
)
def test_a_mistake_in_an_arms_override_is_named(overrides: dict, words: list[str]) -> None:
    values = read_yaml(CONFIG / "config.yaml") | {"arm_overrides": overrides}
    with pytest.raises(ConfigError) as refused:
        validate_study(values, CONFIG)
    assert all(word in str(refused.value) for word in words), str(refused.value)


def test_the_schema_refuses_an_unknown_key_as_the_model_does() -> None:
    values = read_yaml(CONFIG / "config.yaml") | {"seed": 1}
    with pytest.raises(jsonschema.ValidationError, match="'seed' was unexpected"):
        jsonschema.validate(values, schemas()["config.schema.json"])


def test_mappings_are_merged_and_lists_replaced() -> None:
    base = {"a": {"x": 1, "y": [1, 2]}, "b": 1}
    assert merge(base, {"a": {"y": [3], "z": 0}}) == {"a": {"x": 1, "y": [3], "z": 0}, "b": 1}
    assert base == {"a": {"x": 1, "y": [1, 2]}, "b": 1}


def test_a_file_that_is_absent_broken_or_no_mapping_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml does not exist"):
        read_yaml(tmp_path / "none.yaml")
    for text, reason in (("a: [1", "not valid YAML"), ("- 1\n", "holds list")):
        (tmp_path / "bad.yaml").write_text(text)
        with pytest.raises(ConfigError, match=rf"bad\.yaml.*{reason}"):
            read_yaml(tmp_path / "bad.yaml")


def test_the_lock_of_the_tested_environment_is_plain_so_that_any_index_can_serve_it() -> None:
    """What locks hold beside that: tests/machine/test_environments.py."""
    for line in (ROOT / "envs" / "cpu.txt").read_text().splitlines():
        assert line.startswith("#") or ("==" in line and "+" not in line and " @ " not in line), line


def test_the_merged_configuration_is_written_so_that_it_reads_back(tmp_path: Path) -> None:
    out = tmp_path / "config.yaml"
    written = CliRunner().invoke(app, ["write", str(out), "--settings", '{"study":{"seeds":[0]},"arms":{}}'])
    assert written.exit_code == 0
    assert read_yaml(out) == {"study": {"seeds": [0]}, "arms": {}}


@pytest.mark.parametrize(
    ("agent", "algorithm", "named"),
    [
        ("search", "sft", "agent.strategy is 'search', but training.algorithm 'sft' trains direct"),
        ("direct", "ppo", "agent.strategy is 'direct', but training.algorithm 'ppo' trains search"),
        ("rag", "rejection_sampling", "agent.strategy is 'rag', but training.algorithm 'rejection_sampling' trains"),
    ],
)
def test_an_algorithm_trains_only_its_own_strategies(agent: str, algorithm: str, named: str, tmp_path: Path) -> None:
    (tmp_path / "arms").mkdir()
    overlay = f"agent: {{strategy: {agent}}}\ntraining: {{algorithm: {algorithm}, steps: 1}}\n"
    (tmp_path / "arms" / "odd.yaml").write_text(overlay)
    with pytest.raises(ConfigError, match=named):
        load_arm(load_study(config_dir=CONFIG), "odd", tmp_path)
    (tmp_path / "arms" / "odd.yaml").write_text(overlay.replace("steps: 1", "steps: 0"))
    assert load_arm(load_study(config_dir=CONFIG), "odd", tmp_path).agent.strategy == agent
