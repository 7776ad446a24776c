"""The guides without a study: marks, commands, and the files and lines that they tell their readers to write."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from follow import CLUSTER, GUIDES, OWN_GUIDES
from guide_steps import DIFF, FILE, OUTPUT, SHELL, GuideError, Step, changed, missing_line, steps_of
from markdown_it import MarkdownIt

from parallelsearch.cli import VERBS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


@pytest.mark.parametrize("page", GUIDES)
def test_every_fenced_block_is_a_step(page: str) -> None:
    """A block without a mark would be shown to readers and followed by nobody."""
    fences = [token for token in MarkdownIt().parse((DOCS / page).read_text()) if token.type == "fence"]
    steps = steps_of(DOCS / page)
    assert len(steps) == len(fences) > 5
    assert {step.kind for step in steps} >= {SHELL, OUTPUT}


@pytest.mark.parametrize("page", GUIDES)
def test_commands_are_bash_and_verbs_there_are(page: str) -> None:
    for step in steps_of(DOCS / page):
        if step.kind == SHELL:
            subprocess.run(["bash", "-n"], input=step.text, text=True, check=True)
            for verb in re.findall(r"^\s*parallelsearch ([a-z-]+)", step.text, flags=re.MULTILINE):
                assert verb in VERBS, step.place


@pytest.mark.parametrize("page", OWN_GUIDES)
def test_a_guide_makes_its_environment_and_leaves_nothing_out(page: str) -> None:
    steps = steps_of(DOCS / page)
    assert steps[0].flags == {"environment"} and "make env" in steps[0].text
    assert not any(step.skip for step in steps)


def test_only_the_cluster_guide_leaves_steps_out_and_says_why() -> None:
    left_out = {step.title: step.skip for step in steps_of(DOCS / CLUSTER) if step.skip}
    assert left_out and all(len(reason) > 10 for reason in left_out.values())


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Source and configuration with everything that the four guides write and change."""
    root = tmp_path_factory.mktemp("guides")
    for part in ("src", "config", "tests", "workflow"):
        shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for page in OWN_GUIDES:
        for step in steps_of(DOCS / page):
            path = root / step.path
            if step.kind == FILE:
                assert not path.exists(), f"{step.place}: {step.path} is in the repository already"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(step.text)
            elif step.kind == DIFF:
                path.write_text(changed(path.read_text(), step.text))
    return root


def python(checkout: Path, *arguments: str) -> str:
    """Output of Python with the changed source."""
    environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=checkout, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


PLANS = """
import sys
from pathlib import Path
from parallelsearch.config_files import load_arm, load_study
from parallelsearch.plan.planning import StudyPlan
for study in sys.argv[1:]:
    plan = StudyPlan(load_study(Path(study)))
    print(study, plan.question_sets, [(name, plan.arm(name).agent.strategy) for name in plan.study.arms])
print(load_arm(load_study(), "no-repeats").reward.extra)
"""


def test_the_studies_and_arms_of_the_guides_can_be_planned(checkout: Path) -> None:
    planned = python(checkout, "-c", PLANS, "config/archive.yaml", "config/capitals.yaml", "config/split.yaml")
    assert planned.splitlines() == [
        "config/archive.yaml ['archive.test'] [('direct', 'direct'), ('rag', 'rag')]",
        "config/capitals.yaml ['capitals.test'] [('direct', 'direct'), ('rag', 'rag')]",
        "config/split.yaml ['geoworld.test'] [('rag', 'rag'), ('split-first', 'split_first')]",
        "{'repeated_query': 0.2}",
    ]


TERM = """
import json
from parallelsearch.config import RewardConfig
from parallelsearch.agent.transcript import parse_transcript
from parallelsearch.records import Question, Structure
from parallelsearch.rewards.compose import score
QUESTION = Question("q", "d", "dev", "Which?", ("Peru",), "comparison", Structure.PARALLEL)
def search(text): return f"<think>t</think><search>{text}</search>\\n\\n<information>x\\n</information>\\n\\n"
for searches in (["a ## b"], ["a ## A", " a "], ["a", "b ## a", "c ## b ## c"]):
    episode = parse_transcript(QUESTION, "".join(map(search, searches)) + "<think>t</think><answer>Peru</answer>")
    made = score(episode, QUESTION, RewardConfig(extra={"repeated_query": 0.5})).as_dict()
    print(json.dumps([made["repeated_query"], made["total"] - sum(v for k, v in made.items() if k != "total")]))
"""


def test_the_reward_term_of_its_guide_by_hand(checkout: Path) -> None:
    """No repetition; `A` and ` a ` repeat a; a, then b and c: each costs half."""
    rows = [json.loads(line) for line in python(checkout, "-c", TERM).splitlines()]
    assert [row[0] for row in rows] == [0.0, -1.0, -1.5]
    assert [row[1] for row in rows] == pytest.approx([0.0, 0.0, 0.0])


def test_the_strategy_of_its_guide_passes_what_the_guide_lets_its_reader_run(checkout: Path) -> None:
    page = steps_of(DOCS / "own-strategy.md")
    [tests] = [step for step in page if step.kind == SHELL and step.text.startswith("pytest")]
    python(checkout, "-m", "parallelsearch.cli", "config", "schema")
    for part in ("pyproject.toml",):
        shutil.copy(ROOT / part, checkout / part)
    ran = python(checkout, "-m", *shlex.split(tests.text))
    assert re.search(r"^(\d+) passed", ran, flags=re.MULTILINE), ran
    assert int(re.search(r"(\d+) passed", ran)[1]) >= 5  # type: ignore[index]


SPLIT = """
import asyncio
from parallelsearch.engines.engine import Generation, Sampling
from parallelsearch.config import AgentConfig
from parallelsearch.records import Hit, Passage, Question, Structure
from parallelsearch.strategies.strategy import answer
import sys
sys.path.insert(0, "tests")
from scripted import ScriptedEngine, WordRetriever
from parallelsearch.training.warm_start.policy import train_tokenizer
tokenizer = train_tokenizer(["Question: which is older, and who was it? The answer is 1: no.\\n"] * 3, 400)
reply = "1. founded Oslo\\n- founded Bergen\\n\\n2. founded Oslo\\n3. a\\n4. b"
engine = ScriptedEngine(tokenizer, [reply, "Answer: Oslo"])
retriever = WordRetriever([Passage(0, "Oslo", "founded 1040"), Passage(1, "Bergen", "founded 1070")])
agent = AgentConfig(strategy="split_first", max_sub_queries=3, max_prompt_tokens=2000)
question = Question("q", "d", "dev", "Which is older, Oslo or Bergen?", ("Oslo",), "comparison", Structure.PARALLEL)
episode = asyncio.run(answer(question, engine, retriever, agent, Sampling()))
print(retriever.calls, episode.answer, episode.llm_calls, episode.searches, episode.decomposed)
"""


def test_the_strategy_of_its_guide_in_an_episode_by_hand(checkout: Path) -> None:
    """Numbers and dashes go, a repetition goes, the fourth line is one too many; all is looked up in one search."""
    assert python(checkout, "-c", SPLIT).strip() == "[['founded Oslo', 'founded Bergen', 'a']] Oslo 2 1 True"


def test_output_is_looked_for_line_by_line_in_order() -> None:
    output = "one   two\nthree 3.14 four\nfive\n"
    for found in ("one two\nfive\n", "three … four\n", "…\nfive", "on…two\n…four", ""):
        assert missing_line(found, output) is None
    assert missing_line("five\none two\n", output) == "one two"
    assert missing_line("four … three", output) == "four … three"


def test_a_change_names_lines_that_stand_there_once() -> None:
    assert changed("a\nb\nc\n", " b\n+x\n-c\n") == "a\nb\nx\n"
    for text in ("a\na\n", "c\n"):
        with pytest.raises(GuideError, match=r"stand [02] times"):
            changed(text, " a\n+b\n")


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("```sh silently\ntrue\n```\n", "line 1: the block is marked silently, which means nothing"),
        ("Write it.\n\n```yaml file=a.yaml\nx: 1\n```\n", "line 3: the paragraph before the block does not name"),
    ],
)
def test_a_mark_that_means_nothing_is_refused(page: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(page)
    with pytest.raises(GuideError, match=sentence):
        steps_of(tmp_path / "page.md")


def test_blocks_become_steps(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(
        "Write `a.yaml`:\n\n```yaml file=a.yaml\nx: 1\n```\n\n"
        '```sh skip="needs GPUs"\nnvidia-smi\n```\n\n```\nplain\n```\n'
    )
    assert steps_of(tmp_path / "page.md") == [
        Step("page.md", 3, FILE, "x: 1\n", path="a.yaml"),
        Step("page.md", 7, SHELL, "nvidia-smi\n", skip="needs GPUs"),
    ]
