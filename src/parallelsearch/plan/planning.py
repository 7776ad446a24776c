"""What the workflow asks about a study: which jobs there are, and over which files.

The rules under workflow/rules stay free of logic. What each kind of job reads of the configuration is in
settings_slices.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from parallelsearch.config import SUPERVISED, WARM_START, ArmConfig, RemoteFile, StudyConfig
from parallelsearch.config_files import CONFIG_DIR, declaration_file, load_arm, validate_study
from parallelsearch.errors import ConfigError
from parallelsearch.plan.paths import Results
from parallelsearch.plan.settings_slices import SettingsSlices, split_of

DATASET_TABLES = ("_by_structure", "_by_parts", "_by_budget", "_comparison", "_details", "_over_seeds", "_published")
SWEEP_TABLES = ("_by_structure", "_by_budget")  # also made from what was answered without the study's limits
GEOWORLD_SPLITS = ("train", "dev", "test")


class StudyPlan(SettingsSlices):
    """A validated study as the rules see it."""

    def __init__(self, study: StudyConfig, config_dir: Path = CONFIG_DIR) -> None:
        """Raises ConfigError for a question set, corpus, raw file, encoder, reranker or policy that cannot be had."""
        self.study = study
        self.config_dir = Path(config_dir)
        self.results = Results(study.results)
        declaration_file("encoders", study.embed.encoder, "configuration: embed.encoder", self.config_dir)
        if study.index.reranker:
            model = study.index.reranker.model
            declaration_file("rerankers", model, "configuration: index.reranker.model", self.config_dir)
        for question_set in self.question_sets:
            self.raw_questions(question_set)
            self.raw_corpus(self.corpus_of(question_set))
        for name in self.trained_arms:
            self.training_corpus(name)
            self.simulator(name)
        self.initial_policy(0)

    @classmethod
    def from_values(cls, values: dict[str, Any], config_dir: Path = CONFIG_DIR) -> StudyPlan:
        """A plan from the merged mapping that Snakemake holds."""
        return cls(validate_study(values, config_dir), config_dir)

    # Names ------------------------------------------------------------------------------------------------------

    def arm(self, name: str) -> ArmConfig:
        """An arm by name; also one that the study does not list, so that a single ablation cell can be a target."""
        return load_arm(self.study, name, self.config_dir)

    @property
    def trained_arms(self) -> list[str]:
        """The arms of the study that are trained; the others are answered by the initial policy."""
        return [name for name in self.study.arms if self.arm(name).training.steps]

    @property
    def rewarded_arms(self) -> list[str]:
        """The trained arms that have a reward; the others learn from demonstrations."""
        return [name for name in self.trained_arms if self.arm(name).training.algorithm not in SUPERVISED]

    @property
    def arm_targets(self) -> dict[str, str]:
        """Name of the workflow's target for each arm of the study: search-r1 -> arm_search_r1."""
        return {"arm_" + re.sub(r"\W", "_", name): name for name in self.study.arms}

    @property
    def evaluated(self) -> list[str]:
        """Everything that is evaluated: the policy before reinforcement learning (where we made it), then the arms."""
        return [WARM_START, *self.study.arms] if self.study.policy.source == "scratch" else list(self.study.arms)

    @property
    def question_sets(self) -> list[str]:
        """DATASET.SPLIT of every question set that the study trains on or evaluates, without repetition."""
        training = [*(self.arm(name).training for name in self.trained_arms)]
        return list(dict.fromkeys([*(entry for part in training for entry in part.sets), *self.study.evaluation.sets]))

    def training_sets(self, name: str) -> list[str]:
        return self.arm(name).training.sets

    def corpus_of(self, question_set: str) -> str:
        """The corpus searched for a question set; an unknown data set is a ConfigError."""
        dataset, _ = split_of(question_set)
        if dataset not in self.study.datasets:
            known = ", ".join(self.study.datasets)
            raise ConfigError(f"configuration: '{question_set}' is of an unknown data set; known data sets: {known}.")
        return self.study.datasets[dataset].corpus

    def training_corpus(self, name: str) -> str:
        """The one corpus that is searched while an arm is trained."""
        corpora = sorted({self.corpus_of(entry) for entry in self.training_sets(name)})
        if len(corpora) != 1:
            raise ConfigError(
                f"configuration: training.sets of {name} needs the corpora {', '.join(corpora)}, but one job searches"
                " one corpus; keep the sets of one of them."
            )
        return corpora[0]

    # Files ------------------------------------------------------------------------------------------------------

    def questions(self, question_set: str) -> Path:
        return self.results.questions(*split_of(question_set))

    def raw_questions(self, question_set: str) -> Path:
        """The data set's own file of one split."""
        self.corpus_of(question_set)
        dataset, split = split_of(question_set)
        declared = self.study.datasets[dataset]
        if declared.reader == "geoworld":
            if split not in GEOWORLD_SPLITS:
                raise ConfigError(
                    f"configuration: '{question_set}' is no split of a generated data set;"
                    f" known splits: {', '.join(GEOWORLD_SPLITS)}."
                )
            return self.results.geoworld() / f"questions.{split}.jsonl"
        if split not in declared.splits:
            known = ", ".join(declared.splits) or "none"
            raise ConfigError(f"configuration: '{question_set}' has no file; datasets.{dataset}.splits knows: {known}.")
        return _obtainable(declared.splits[split], f"datasets.{dataset}.splits.{split}")

    def raw_corpus(self, corpus: str) -> Path:
        """The raw file of a corpus."""
        declared = self.study.corpora[corpus]
        if declared.source == "geoworld":
            return self.results.geoworld() / "passages.jsonl"
        if declared.file is None:
            raise ConfigError(f"configuration: corpora.{corpus}.file is missing; only a generated corpus has none.")
        return _obtainable(declared.file, f"corpora.{corpus}.file")

    @cached_property
    def downloads(self) -> dict[str, RemoteFile]:
        """Path -> registry entry of every file with a URL."""
        files = [corpus.file for corpus in self.study.corpora.values() if corpus.file]
        files += [file for dataset in self.study.datasets.values() for file in dataset.splits.values()]
        return {file.path: file for file in files if file.url}

    def index(self, corpus: str) -> Path:
        """The folder that is searched: of the first stage, or of the reranker over it."""
        reranker = self.study.index.reranker
        first = self.first_stage(corpus)
        return self.results.reranked(first, reranker.model) if reranker else first

    def first_stage(self, corpus: str) -> Path:
        match self.study.index.kind:
            case "bm25":
                return self.results.bm25(corpus)
            case "hybrid":
                return self.hybrid_index(corpus)
        return self.dense_index(corpus)

    def dense_index(self, corpus: str) -> Path:
        return self.results.index(corpus, self.study.embed.encoder, self.dense_kind)

    def hybrid_index(self, corpus: str) -> Path:
        return self.results.index(corpus, self.study.embed.encoder, "hybrid")

    def embeddings(self, corpus: str) -> Path:
        return self.results.embeddings(corpus, self.study.embed.encoder)

    def shards(self, corpus: str) -> list[Path]:
        """The shards of a corpus's embeddings, in order."""
        count = self.study.corpora[corpus].shards or self.study.embed.shards
        return [self.embeddings(corpus) / f"shard-{number}-of-{count}.npy" for number in range(count)]

    def episodes(self, name: str | None = None) -> list[Path]:
        """Episodes of one arm, or of everything that is evaluated."""
        return self._each(self.results.episodes, [name] if name else self.evaluated)

    @property
    def swept_arms(self) -> list[str]:
        """What is evaluated once more without the study's limits: agents that search in their own loop."""
        if self.study.evaluation.budgets is None:
            return []
        agents = {name: self.study.agent if name == WARM_START else self.arm(name).agent for name in self.evaluated}
        return [name for name, agent in agents.items() if agent.strategy == "search" and agent.max_search_turns]

    def unlimited_episodes(self) -> list[Path]:
        """Episodes under evaluation.budgets.unlimited, where the study asks for accuracy against budget."""
        return self._each(self.results.unlimited_episodes, self.swept_arms)

    def _each(self, path: Callable[[str, int, str], Path], arms: list[str]) -> list[Path]:
        seeds, question_sets = self.study.seeds, self.study.evaluation.sets
        return [path(arm, seed, entry) for arm in arms for seed in seeds for entry in question_sets]

    def reported(self) -> list[Path]:
        """What figures, findings and the report are made from."""
        return self.answered() + self.unlimited_episodes() + self.trained()

    def published_episodes(self) -> list[Path]:
        """Episodes of the published protocol, where the study asks for it."""
        asked = self.study.evaluation.published_protocol is not None
        return self._each(self.results.published_episodes, self.evaluated if asked else [])

    def answered(self) -> list[Path]:
        """Everything that tables and figures know of answers: the episodes, and what a judge said of them."""
        judged = self.study.evaluation.judge is not None
        return self.episodes() + [path.with_name("judgements.parquet") for path in self.episodes() if judged]

    def trained(self) -> list[Path]:
        """The final marker of every training job."""
        return [self.results.train(arm, seed) / "done.json" for arm in self.trained_arms for seed in self.study.seeds]

    @property
    def tables(self) -> list[str]:
        """Names of the study's tables: several for every data set, the others over all of them."""
        datasets = dict.fromkeys(split_of(question_set)[0] for question_set in self.study.evaluation.sets)
        kinds = [suffix for suffix in DATASET_TABLES if suffix != "_by_budget" or self.swept_arms]
        by_dataset = [f"{dataset}{suffix}" for dataset in datasets for suffix in kinds]
        of_runs = ["training_summary"] if self.trained_arms else []
        return [*by_dataset, "em_by_dataset", *(["ablation_grid"] if self.rewarded_arms else []), *of_runs]

    @property
    def figures(self) -> list[str]:
        """Names of the study's figures; some need trained arms, several numbers of passages, or budgets."""
        of_episodes = ["by_structure", "turn_distribution", "response_length", "pareto", "critical_path", "confusion"]
        agents = [self.arm(name).agent for name in self.study.arms]
        if len({agent.top_k for agent in agents if agent.strategy == "search"}) > 1:
            of_episodes.append("top_k")
        if self.treatment:
            of_episodes.append("gain")
        if self.swept_arms:
            of_episodes.append("accuracy_by_budget")
        of_runs = ["training_curves"] if self.trained_arms else []
        return [*of_episodes, *of_runs, *(["ablation_grid"] if self.rewarded_arms else [])]

    def table_inputs(self, table: str) -> list[Path]:
        """What a table is made from: a data set's from the episodes of that data set, the others from everything."""
        suffix = next((suffix for suffix in DATASET_TABLES if table.endswith(suffix)), "")
        if not suffix:
            return self.answered() + self.trained()
        dataset = table.removesuffix(suffix)
        files = self.answered() + (self.published_episodes() if suffix == "_published" else [])
        files += self.unlimited_episodes() if suffix in SWEEP_TABLES else []
        return [path for path in files if split_of(path.parent.name)[0] == dataset]

    def policy(self, name: str, seed: int | str) -> str:
        """The policy that is evaluated under `name`: a folder, or a published model's name."""
        trained = self.trained_as(name)
        return str(self.results.train(trained, seed)) if trained else self.initial_policy(seed)

    def policy_marker(self, name: str, seed: int | str) -> list[Path]:
        """The file that exists when that policy is complete; none for a published model. ConfigError: unknown arm."""
        trained = self.trained_as(name)
        return [self.results.train(trained, seed) / "done.json"] if trained else self.initial_marker(seed)

    def trained_as(self, name: str) -> str | None:
        """The arm in whose training the policy evaluated under `name` was made; None for the initial policy."""
        if name == WARM_START:
            return None
        arm = self.arm(name)
        return arm.policy_of or (name if arm.training.steps else None)

    def initial_marker(self, seed: int | str) -> list[Path]:
        """What training waits for: the warm start, a packaged model, or nothing for a model of the hub."""
        policy = self.study.policy
        if policy.source == "scratch":
            return [self.results.warm_start(seed) / "done.json"]
        return [self.results.policy(str(policy.model)) / "manifest.json"] if policy.source == "package" else []

    def initial_policy(self, seed: int | str) -> str:
        """What training starts from: the warm-started policy, a packaged model, or one of the hub."""
        policy = self.study.policy
        if policy.source == "scratch":
            return str(self.results.warm_start(seed))
        if not policy.model:
            raise ConfigError(
                f"configuration: policy.source is '{policy.source}', but policy.model is not set; name a model."
            )
        if policy.source == "package":
            declaration_file("policies", policy.model, "configuration: policy.model", self.config_dir)
            return str(self.results.policy(policy.model))
        return f"{policy.model}@{policy.revision}" if policy.revision else policy.model

    def simulator(self, name: str) -> list[Path]:
        """The folder of the model that simulates the searches of an arm beside its job; none where it has none."""
        simulator = self.arm(name).training.simulator
        if simulator is None or simulator.policy is None:
            return []
        key = f"arm {name}: training.simulator.policy"
        declaration_file("policies", simulator.policy, key, self.config_dir)
        return [self.results.policy(simulator.policy)]


def _obtainable(file: RemoteFile, key: str) -> Path:
    path = Path(file.path)
    if not file.url and not path.exists():
        raise ConfigError(
            f"configuration: {key}.path is '{path}', which does not exist and has no url;"
            " put the file there or add its url."
        )
    return path
