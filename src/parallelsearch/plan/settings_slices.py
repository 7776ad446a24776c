"""The slice of the configuration that each kind of job reads, as canonical JSON.

A costly rule's `params` is one of these: it changes exactly when a value that the job reads changes, so an edit
reschedules only the jobs that it concerns.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any

from parallelsearch.config import (
    OWN,
    READ_BY,
    TREATMENT,
    WARM_START,
    ArmConfig,
    PassageLayout,
    QuestionLayout,
    Section,
    StudyConfig,
)

EVALUATE_FIELDS = ("limit", "drop_last", "temperature", "batch_size", "device", "engine", "server")


def canonical(value: Any) -> str:
    """JSON with sorted keys and no white space: equal settings give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def settings(section: Section, *fields: str) -> dict[str, Any]:
    """The named fields of a section (all of them when none is named) as plain values."""
    values = section.model_dump(mode="json")
    return {name: values[name] for name in fields or values}


def split_of(question_set: str) -> tuple[str, str]:
    """'hotpotqa.dev' -> ('hotpotqa', 'dev')."""
    dataset, _, split = question_set.partition(".")
    return dataset, split


class SettingsSlices(ABC):
    """The slices of a validated study; StudyPlan adds jobs and files, and how an arm is found."""

    study: StudyConfig

    @abstractmethod
    def arm(self, name: str) -> ArmConfig:
        """The arm `name`, complete."""

    @property
    def treatment(self) -> str | None:
        """The arm whose gain the report tells first: parallelsearch, or the first trained one beside the baseline."""
        study = self.study
        trained = [name for name in study.arms if name != study.baseline and self.arm(name).training.steps]
        return next((name for name in (TREATMENT, *trained) if name in study.arms and name != study.baseline), None)

    def geoworld_settings(self) -> str:
        return canonical(settings(self.study.geoworld))

    def question_sizes(self, question_set: str) -> str:
        """What the file of a question set has to hold, and its checksum where one is registered."""
        dataset, split = split_of(question_set)
        declared = self.study.datasets[dataset].splits.get(split)
        checked = ("questions", "structures", *(["sha256"] if declared and declared.sha256 else []))
        return canonical(settings(declared, *checked) if declared else {})

    def question_reader(self, dataset: str) -> str | list[str]:
        """The reader of a data set; of one's own also the options with its name and its layout."""
        declared = self.study.datasets[dataset]
        if declared.reader != OWN:
            return declared.reader
        return [OWN, "--name", dataset, "--layout", canonical(settings(declared.layout or QuestionLayout()))]

    def corpus_source(self, corpus: str) -> str | list[str]:
        """Source of a corpus, and the options with its layout, where it is one's own, and its registered checksum."""
        declared = self.study.corpora[corpus]
        known = declared.file.sha256 if declared.file else None
        options = ["--sha256", known] if known else []
        if declared.source == OWN:
            options += ["--layout", canonical(settings(declared.layout or PassageLayout()))]
        return [declared.source, *options] if options else declared.source

    def embed_settings(self) -> str:
        return canonical(settings(self.study.embed, "tokens_per_batch"))

    def index_settings(self) -> str:
        """Of the FAISS index, alone or in a hybrid one."""
        index = self.study.index
        return canonical({"kind": self.dense_kind, "parameters": index.parameters})

    @property
    def dense_kind(self) -> str:
        index = self.study.index
        return index.hybrid.dense if index.kind in ("bm25", "hybrid") else index.kind

    def bm25_settings(self) -> str:
        return canonical(settings(self.study.index.bm25))

    def fusion_settings(self) -> str:
        return canonical(settings(self.study.index.hybrid, "candidates", "k"))

    def rerank_candidates(self) -> int:
        """Hits that the reranker scores for each query; 0 without one."""
        reranker = self.study.index.reranker
        return reranker.candidates if reranker else 0

    def warm_start_settings(self) -> str:
        """Without the size of a published model, which is not warmed up."""
        values = {key: settings(getattr(self.study, key)) for key in ("agent", "policy", "warm_start")}
        del values["policy"]["parameters"]
        return canonical(values)

    def train_settings(self, name: str) -> str:
        """The arm, without the keys of training that its algorithm does not read."""
        values = settings(self.arm(name))
        training = values["training"]
        unread = {key for key, algorithms in READ_BY.items() if training["algorithm"] not in algorithms}
        kept = {key: value for key, value in training.items() if key not in unread}
        return canonical({**values, "training": kept, "description": ""})

    def evaluate_settings(self, name: str, published: bool = False, unlimited: bool = False) -> str:
        """`published`: with the published protocol's temperature and truncation.

        `unlimited`: under the limits of evaluation.budgets.unlimited; an arm whose own are larger keeps them.
        """
        source: StudyConfig | ArmConfig = self.study if name == WARM_START else self.arm(name)
        answering = settings(self.study.evaluation, *EVALUATE_FIELDS)
        if published and self.study.evaluation.published_protocol:
            answering |= settings(self.study.evaluation.published_protocol)
        agent, budgets = settings(source.agent), self.study.evaluation.budgets
        if unlimited and budgets:
            agent |= {name: max(agent[name], limit) for name, limit in settings(budgets.unlimited).items()}
        return canonical({"agent": agent, "reward": settings(source.reward), "evaluation": answering})

    def judge_settings(self) -> str:
        judge = self.study.evaluation.judge
        return canonical(settings(judge) if judge else {})

    def tracking_settings(self) -> str:
        return canonical(settings(self.study.tracking))

    def report_settings(self) -> str:
        study = self.study
        return canonical(
            {
                "baseline": study.baseline,
                "treatment": self.treatment,
                "arms": study.arms,
                "descriptions": {name: self.arm(name).description for name in study.arms},
                "evaluation": settings(study.evaluation, "confidence", "bootstrap_samples", "budgets"),
            }
        )

    def merged(self) -> str:
        """The whole study with all its arms, complete."""
        arms = {name: settings(self.arm(name)) for name in self.study.arms}
        return canonical({"study": settings(self.study), "arms": arms})
