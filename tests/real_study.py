"""A small study over real HotpotQA questions for the tests of evaluation, report and tracking.

Questions, passages, protocol, rewards, files and configuration are the real ones; only what the policy says is decided
by a seeded draw (how often it searches in parallel and answers right), because no test may train four arms first.
"""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import dataclass
from pathlib import Path

from parallelsearch.agent.protocol import is_well_formed, parse_generation, render_hit, render_information
from parallelsearch.config import WARM_START, TrackingConfig
from parallelsearch.config_files import load_arm, load_study
from parallelsearch.evaluation.episodes import Provenance, write_episodes
from parallelsearch.plan.paths import Results
from parallelsearch.records import Action, Episode, Hit, Passage, Question, StopReason, Structure, SubQuery, Turn
from parallelsearch.rewards.compose import score
from parallelsearch.runs.run_folder import MetricsLog, finish_run, start_run

ARMS = ("search-r1", "parallelsearch", "no-decomposition-reward", "no-search-count-reward")
DATASET = "hotpotqa"
# arm -> (share of parallel searches on comparison questions, share of right answers)
HABITS = {
    WARM_START: (0.3, 0.4),
    "search-r1": (0.15, 0.5),
    "parallelsearch": (0.95, 0.7),
    "no-decomposition-reward": (0.5, 0.6),
    "no-search-count-reward": (0.9, 0.55),
}
STEPS = 20
TRACKING = TrackingConfig(experiment="parallelsearch", uri=None, traces_per_run=3)


@dataclass(frozen=True)
class RealStudy:
    """Where the files of the study lie."""

    results: Results
    episodes: list[Path]
    runs: list[Path]

    @property
    def inputs(self) -> list[Path]:
        return [*self.episodes, *self.runs]


def read_hotpotqa(shared_data: Path) -> list[tuple[Question, list[Passage]]]:
    """The first 30 bridge and all comparison questions of the official sample, each with its supporting passages."""
    with gzip.open(shared_data / "raw" / "hotpotqa_official_100.json.gz", "rt", encoding="utf-8") as stream:
        rows = json.load(stream)
    bridge = [row for row in rows if row["type"] == "bridge"][:30]
    pairs, ids = [], {}
    for row in bridge + [row for row in rows if row["type"] == "comparison"]:
        texts = {title: " ".join("".join(sentences).split()) for title, sentences in row["context"]}
        titles = list(dict.fromkeys(title for title, _ in row["supporting_facts"]))
        passages = [Passage(ids.setdefault(title, len(ids)), title, texts[title][:400]) for title in titles]
        question = Question(
            qid=row["_id"],
            dataset=DATASET,
            split="dev",
            text=row["question"],
            golden_answers=(row["answer"],),
            type=row["type"],
            structure=Structure.PARALLEL if row["type"] == "comparison" else Structure.SEQUENTIAL,
            hops=2,
            supporting_titles=tuple(titles),
            supporting_ids=tuple(passage.id for passage in passages),
        )
        pairs.append((question, passages))
    return pairs


def answered(question: Question, passages: list[Passage], parallel: bool, right: bool, draw: random.Random) -> Episode:
    """The episode in which every supporting passage is looked up by its title, at once or one after the other."""
    groups = [passages] if parallel else [[passage] for passage in passages]
    turns = [_search([(passage.title, [passage]) for passage in group], draw) for group in groups]
    answer = question.golden_answers[0] if right else passages[0].title
    text = f"<think>I know enough.</think><answer>{answer}</answer>"
    turns.append(_turn(text, (), "", draw))
    return Episode(
        question=question,
        turns=tuple(turns),
        answer=answer,
        stop_reason=StopReason.ANSWERED,
        well_formed=is_well_formed(turns),
        prompt=f"Question: {question.text}\n",
        prompt_tokens=len(question.text.split()) + 2,
        seconds=sum(turn.generate_seconds + turn.search_seconds for turn in turns) + 0.001,
    )


def failed(question: Question) -> Episode:
    """An episode whose retriever did not answer."""
    return Episode(question, (), None, StopReason.RETRIEVER_ERROR, False, error="The retriever did not answer.")


def build(root: Path, shared_data: Path, seeds: tuple[int, ...] = (0, 1)) -> RealStudy:
    """Writes eval/*/seed*/hotpotqa.dev/episodes.parquet and train/*/seed* under `root`."""
    results, questions = Results(root), read_hotpotqa(shared_data)
    study = load_study()
    episode_files, runs = [], []
    for arm, (parallel, right) in HABITS.items():
        reward = study.reward if arm == WARM_START else load_arm(study, arm).reward
        for seed in seeds:
            draw = random.Random(f"{arm}{seed}")
            episodes = [
                answered(
                    question,
                    passages,
                    question.structure is Structure.PARALLEL and draw.random() < parallel,
                    draw.random() < right,
                    draw,
                )
                for question, passages in questions
            ]
            if arm == "no-search-count-reward":
                episodes[3] = failed(questions[3][0])
            path = results.episodes(arm, seed, f"{DATASET}.dev")
            provenance = Provenance(
                policy_sha256="1" * 64,
                index_sha256="2" * 64,
                corpus_sha256="3" * 64,
                questions_sha256="4" * 64,
                top_k=2,
                decoding={"temperature": 0.0, "max_generation_tokens": 64},
                config={"agent": study.agent.model_dump()},
                corpus="hotpotqa-contexts",
                index="flat",
            )
            scored = [(episode, score(episode, episode.question, reward)) for episode in episodes]
            write_episodes(path, scored, arm=arm, seed=seed, provenance=provenance)
            episode_files.append(path)
            if arm != WARM_START:
                runs.append(
                    _write_run(results.train(arm, seed), arm, seed, load_arm(study, arm).model_dump(mode="json"))
                )
    return RealStudy(results, episode_files, runs)


def write_supervised_run(results: Results, arm: str, seed: int, losses: list[float]) -> Path:
    """A run of an arm that learns from demonstrations: its curve is a loss, there is no reward."""
    folder, config = results.train(arm, seed), {**load_arm(load_study(), arm).model_dump(mode="json"), "seed": seed}
    start_run(folder, config)
    log = MetricsLog(folder / "metrics.jsonl")
    for step, loss in enumerate(losses, 1):
        figures = {"gradient_norm": 2.0, "learning_rate": 1e-3, "tokens": 500.0, "demonstrations": 40}
        log.append({"step": step, "loss": loss, **figures, "seconds": 1.5})
    finish_run(folder, config, {"policy": "6" * 64}, arm=arm, seed=seed, steps=len(losses), seconds=1.5 * len(losses))
    return folder


def _search(queries: list[tuple[str, list[Passage]]], draw: random.Random) -> Turn:
    text = f"<think>I look it up.</think><search>{' ## '.join(query for query, _ in queries)}</search>"
    sub_queries = tuple(
        SubQuery(query, tuple(Hit(passage, 0.9 - 0.1 * draw.random()) for passage in passages), shown=len(passages))
        for query, passages in queries
    )
    shown = [(q.text, "".join(render_hit(rank, hit) for rank, hit in enumerate(q.hits, 1))) for q in sub_queries]
    return _turn(text, sub_queries, render_information(shown), draw)


def _turn(text: str, sub_queries: tuple[SubQuery, ...], observation: str, draw: random.Random) -> Turn:
    parsed = parse_generation(text)
    return Turn(
        text=text,
        action=parsed.action,
        sub_queries=sub_queries,
        answer=parsed.answer,
        observation=observation,
        model_tokens=len(text.split()),
        observation_tokens=len(observation.split()),
        generate_seconds=0.05 + 0.02 * draw.random(),
        search_seconds=0.01 + 0.005 * draw.random() if parsed.action is Action.SEARCH else 0.0,
    )


def _write_run(folder: Path, arm: str, seed: int, config: dict) -> Path:
    draw = random.Random(f"curve {arm}{seed}")
    parallel, right = HABITS[arm]
    steps = []
    for step in range(1, STEPS + 1):
        share = step / STEPS
        ratio = (1 - share) * HABITS[WARM_START][0] + share * parallel
        steps.append(
            {
                "step": step,
                "seconds": 5 + draw.random(),
                "reward_mean": 0.5 + share * right + 0.02 * draw.random(),
                "em": 0.4 + share * (right - 0.4) + 0.02 * draw.random(),
                "decomposition_ratio": ratio / 2,
                "decomposition_ratio/parallel": ratio,
                "decomposition_ratio/sequential": 0.05 * draw.random(),
                "turns": 3 - ratio,
                "turns/parallel": 3 - ratio,
                "well_formed": 0.9 + 0.1 * draw.random(),
                "response_tokens": 80.0 + draw.random(),
                "actor/entropy": 1 - 0.5 * share,
                "timing(s)/gen": 3 + draw.random(),
            }
        )
    config = {**config, "seed": seed}
    start_run(folder, config)
    log = MetricsLog(folder / "metrics.jsonl")
    for entry in steps:
        log.append(entry)
    inputs = {"policy": "6" * 64, "index": "2" * 64, "questions/hotpotqa.train.parquet": "4" * 64}
    finish_run(folder, config, inputs, arm=arm, seed=seed, steps=STEPS, seconds=sum(step["seconds"] for step in steps))
    return folder
