"""Policies that hold a pickle, code of their own, or a changed file: refused in one sentence, and nothing is run."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from parallelsearch.config import PolicyConfig
from parallelsearch.engines.hf import HFEngine
from parallelsearch.errors import DataError, EngineError, MismatchError, TrainingError, UserError
from parallelsearch.evaluation.commands import app as evaluation
from parallelsearch.files import write_json
from parallelsearch.model_folder import file_checksums
from parallelsearch.runs.local_policy import local_policy
from parallelsearch.runs.run_folder import finish_run
from parallelsearch.runs.tensor_file import load_tensors
from parallelsearch.training.commands import app as training
from parallelsearch.training.verl.policy_export import merged_shards
from parallelsearch.training.warm_start.policy import build_policy, save_policy, train_tokenizer

OWNED = "OWNED"
CODE = """
import pathlib
pathlib.Path("OWNED").write_text("x")
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer
class OwnedConfig(Qwen2Config):
    model_type = "owned"
class OwnedModel(Qwen2ForCausalLM):
    config_class = OwnedConfig
class OwnedTokenizer(Qwen2Tokenizer):
    pass
"""


class Payload:
    """Makes the file OWNED when it is unpickled."""

    def __reduce__(self):
        return os.system, (f"touch {OWNED}",)


@pytest.fixture(scope="session")
def small_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small") / "policy"
    tokenizer = train_tokenizer(["Which city is larger?"] * 3, 320)
    save_policy(build_policy(PolicyConfig(hidden_size=16, layers=1, heads=2), tokenizer, 0), tokenizer, folder)
    return folder


@pytest.fixture
def policy(small_policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy that a test may change; the test runs in an empty folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    shutil.copytree(small_policy, tmp_path / "policy")
    return tmp_path / "policy"


def owned() -> bool:
    return Path(OWNED).exists()


def test_the_payload_works_where_nothing_guards_against_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"weight": Payload()}, "x.bin")
    torch.load("x.bin", weights_only=False)
    assert owned()


@pytest.mark.parametrize("kind", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "model.pt", "weights.ckpt"])
def test_a_policy_with_nothing_but_a_pickle_is_refused_in_one_sentence(policy: Path, kind: str) -> None:
    (policy / "model.safetensors").unlink()
    torch.save({"weight": Payload()}, policy / kind)
    for use in (local_policy, HFEngine.open):
        with pytest.raises(DataError) as refused:
            use(str(policy))  # type: ignore[operator]
        said = str(refused.value)
        assert said.startswith(f"{policy} holds its weights as a pickle ({kind})") and said.count(". ") == 0
    assert not owned()


def test_the_commands_refuse_a_pickled_policy(policy: Path, tmp_path: Path) -> None:
    (policy / "model.safetensors").unlink()
    torch.save({"weight": Payload()}, policy / "pytorch_model.bin")
    asked = ["--policy", str(policy), "--index", str(tmp_path)]
    arm = json.dumps({"name": "x", "agent": {}, "reward": {}, "training": {}})
    trained = [*asked, "--arm", "x", "--questions", str(tmp_path / "q.parquet"), "--settings", arm]
    for app, words in (
        (evaluation, ["ask", "Who?", *asked]),
        (training, ["train", str(tmp_path / "run"), *trained]),
        (training, ["policy", "serve", str(policy), "--port", "0"]),
    ):
        done = CliRunner().invoke(app, words)
        assert isinstance(done.exception, UserError), (words, done.output, done.exception)
        assert "holds its weights as a pickle (pytorch_model.bin)" in str(done.exception)
    assert not owned() and not (tmp_path / "run").exists()


def test_of_both_kinds_of_weights_the_pickle_is_never_opened(policy: Path) -> None:
    torch.save({"weight": Payload()}, policy / "pytorch_model.bin")
    assert local_policy(str(policy)) == str(policy)
    HFEngine.open(policy).close()
    assert not owned()


@pytest.mark.parametrize("known", [True, False])
def test_a_policys_own_code_is_not_run(policy: Path, known: bool) -> None:
    """With a type that Transformers knows its own class is taken, with another one the policy is refused."""
    (policy / "owned.py").write_text(CODE)
    for name, entries in (
        ("config.json", {"AutoConfig": "owned.OwnedConfig", "AutoModelForCausalLM": "owned.OwnedModel"}),
        ("tokenizer_config.json", {"AutoTokenizer": ["owned.OwnedTokenizer", None]}),
    ):
        path = policy / name
        values = {**json.loads(path.read_text()), "auto_map": entries}
        if not known and name == "config.json":
            values["model_type"] = "owned"
        path.write_text(json.dumps(values))
    if known:
        HFEngine.open(policy).close()
    else:
        with pytest.raises(EngineError, match="cannot be loaded"):
            HFEngine.open(policy)
    assert not owned()


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"])
@pytest.mark.parametrize("made_by", ["run", "export"])
def test_a_changed_file_of_a_policy_is_refused_by_its_checksum(policy: Path, name: str, made_by: str) -> None:
    if made_by == "run":
        finish_run(policy.parent, {}, {})
        where, record = policy.parent, policy.parent / "done.json"
    else:
        where, record = policy, policy / "manifest.json"
        write_json(record, {"kind": "policy", "files": file_checksums(policy)})
    assert local_policy(str(where)) == str(policy)
    content = bytearray((policy / name).read_bytes())
    content[-2] ^= 1
    (policy / name).write_bytes(content)
    with pytest.raises(
        MismatchError, match=rf"{name} has sha256 [0-9a-f]{{64}}, but {record} says [0-9a-f]{{64}}; .*(again|rerun)"
    ):
        local_policy(str(where))
    (policy / name).unlink()
    with pytest.raises(DataError, match="is missing"):
        local_policy(str(where))


def test_a_hostile_shard_of_a_checkpoint_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"weight": Payload()}, tmp_path / "model_world_size_1_rank_0.pt")
    with pytest.raises(TrainingError, match=r"rank_0\.pt cannot be read as tensors alone .*train again\.$"):
        merged_shards(tmp_path)
    assert not owned()


@pytest.mark.parametrize("content", [b"", b"not a file of PyTorch", b"cposix\nsystem\n(S'touch OWNED'\ntR."])
def test_what_is_no_file_of_tensors_is_refused(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoint.pt").write_bytes(content)
    with pytest.raises(TrainingError, match=r"checkpoint\.pt cannot be read as tensors alone .*; delete it\.$"):
        load_tensors(tmp_path / "checkpoint.pt", "delete it")
    assert not owned()
