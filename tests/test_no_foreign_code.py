"""Nothing in this project reads a pickle, runs a model's own code, or hands a string to a shell."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "parallelsearch"
PICKLING = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "skops"}
RUNNING = {"eval", "exec", "compile", "__import__"}
KEYWORDS = {"trust_remote_code": False, "allow_pickle": False, "shell": False, "weights_only": True}
UNSAFE = {
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
    "pd.read_pickle",
    "os.system",
    "os.popen",
    "torch.hub.load",
}


def called(node: ast.Call) -> str:
    return ast.unparse(node.func)


def keywords(node: ast.Call) -> dict[str, ast.expr]:
    return {word.arg: word.value for word in node.keywords if word.arg}


def faults(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, what) of everything that could run what somebody else wrote."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name.partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [(node.module or "").partition(".")[0]]
        else:
            names = []
        yield from ((node.lineno, name) for name in names if name in PICKLING)  # type: ignore[attr-defined]
        if not isinstance(node, ast.Call):
            continue
        name, words = called(node), keywords(node)
        if name in RUNNING or name in UNSAFE or name.endswith(".read_pickle"):
            yield node.lineno, name
        if name.endswith("import_module"):  # a name that a configuration says must not be imported
            yield node.lineno, f"import_module({ast.unparse(node.args[0])})"
        if name == "torch.load" and "weights_only" not in words:  # what it does without depends on its version
            yield node.lineno, "torch.load without weights_only"
        for word, safe in KEYWORDS.items():  # numpy refuses pickles unless it is told otherwise
            given = words.get(word)
            if given is not None and not (isinstance(given, ast.Constant) and given.value is safe):
                yield node.lineno, f"{name}({word}={ast.unparse(given)})"
        if name.endswith(".from_pretrained") and not safe_model(node):
            yield node.lineno, f"{name} without SAFE"
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value == "trust_remote_code":
            yield node.lineno, "the name trust_remote_code as text"


def safe_model(node: ast.Call) -> bool:
    """from_pretrained says that no code of the model runs and, of models, that weights are safetensors."""
    name, words = called(node), keywords(node)
    spread = {ast.unparse(word.value) for word in node.keywords if word.arg is None}
    code = "trust_remote_code" in words or spread & {"SAFE", "SAFE_TOKENIZER"}
    weights = "use_safetensors" in words or "SAFE" in spread
    if name.startswith("GenerationConfig"):
        return True
    return bool(code) and (bool(weights) or name.startswith(("AutoTokenizer", "AutoConfig")))


# The exceptions: the error that torch raises for what it does not admit, the one place that states the setting, and
# modules of this package whose names stand in the source: the verbs, and what two Literal types name.
ALLOWED = {
    ("cli.py", "import_module(VERBS[verb][0])"),
    ("rewards/extra/__init__.py", "import_module(f'{__name__}.{name}')"),
    ("strategies/strategy.py", "import_module(f'parallelsearch.strategies.{name}')"),
    ("runs/tensor_file.py", "pickle"),
    ("model_folder.py", "the name trust_remote_code as text"),
}


def test_no_source_file_reads_pickles_runs_foreign_code_or_calls_a_shell() -> None:
    found = set()
    files = sorted(SOURCE.rglob("*.py"))
    for path in files:
        name = path.relative_to(SOURCE).as_posix()
        found |= {(name, what, line) for line, what in faults(ast.parse(path.read_text()))}
    assert len(files) > 200
    assert {entry for entry in found if entry[:2] not in ALLOWED} == set()
    assert {entry[:2] for entry in found} == ALLOWED


def test_the_one_import_of_pickle_is_of_its_error() -> None:
    tree = ast.parse((SOURCE / "runs" / "tensor_file.py").read_text())
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pickle"
    }
    assert used == {"UnpicklingError"}


def test_the_one_setting_for_models_is_the_safe_one() -> None:
    from parallelsearch.model_folder import SAFE, SAFE_TOKENIZER

    assert SAFE == {"use_safetensors": True, "trust_remote_code": False}
    assert SAFE_TOKENIZER == {"trust_remote_code": False}


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from joblib import load",
        "import torch\ntorch.load(p)",
        "torch.load(p, weights_only=False)",
        "torch.load(p, weights_only=flag)",
        "np.load(p, allow_pickle=True)",
        "pd.read_pickle(p)",
        "yaml.load(t, Loader)",
        "eval(t)",
        "subprocess.run(t, shell=True)",
        "os.system(t)",
        "AutoModel.from_pretrained(p)",
        "AutoModel.from_pretrained(p, trust_remote_code=False)",
        "AutoModel.from_pretrained(p, use_safetensors=True, trust_remote_code=True)",
        "AutoTokenizer.from_pretrained(p)",
        "open_model(p, trust_remote_code=x)",
        "options = {'trust_remote_code': True}",
        "importlib.import_module(settings.name)",
    ],
)
def test_what_would_be_unsafe_is_found(code: str) -> None:
    assert list(faults(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "torch.load(p, weights_only=True)",
        "np.load(p, mmap_mode='r')",
        "yaml.safe_load(t)",
        "AutoModel.from_pretrained(p, **SAFE)",
        "AutoTokenizer.from_pretrained(p, **SAFE_TOKENIZER)",
        "subprocess.run(['a', t])",
    ],
)
def test_what_is_safe_is_not(code: str) -> None:
    assert list(faults(ast.parse(code))) == []


@pytest.mark.parametrize("path", ["rewards/extra/__init__.py", "strategies/strategy.py"])
def test_the_names_that_are_imported_are_those_of_a_literal_type(path: str) -> None:
    """The name in each import is the variable of a loop over `get_args(CAPITALS)`, which only the source can change."""
    tree = ast.parse((SOURCE / path).read_text())
    [table] = [
        node for node in ast.walk(tree) if isinstance(node, ast.DictComp) and "import_module" in ast.unparse(node)
    ]
    assert ast.unparse(table.generators[0].iter) in ("get_args(STRATEGIES)", "get_args(EXTRA_TERMS)")
    assert ast.unparse(table.generators[0].target) == "name"
    assert ast.unparse(tree).count("import_module(") == 1
