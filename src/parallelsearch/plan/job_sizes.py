"""How much work a study's jobs have: passages of a corpus, numbers in a policy, questions of a set.

Known from the configuration, or from the files once they are there; a size that neither knows is assumed, on the large
side. What jobs ask a cluster for follows from these sizes (job_needs.py).
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from parallelsearch.errors import DataError
from parallelsearch.files import MANIFEST, read_json
from parallelsearch.plan.planning import StudyPlan
from parallelsearch.plan.settings_slices import split_of
from parallelsearch.retrieval.encoding.declaration import load_declaration
from parallelsearch.training.warm_start.packaged_policy import load_packaged_policy

BYTES_PER_PASSAGE = 685  # of raw text: wiki-18 has 14.4 GB for 21,015,324 passages of 100 words
COMPRESSED = 0.36  # gzip, of the same file
ASSUMED_PASSAGES = 1_000_000
ASSUMED_QUESTIONS = 20_000
ASSUMED_PARAMETERS = 8_000_000_000


class JobSizes:
    """Sizes of one study."""

    def __init__(self, plan: StudyPlan) -> None:
        self.plan = plan
        self.study = plan.study

    def passages(self, corpus: str) -> int:
        """Passages of a corpus: of its manifest, else of the configuration, else from the size of its raw file."""
        manifest = self.plan.results.corpus(corpus) / MANIFEST
        declared = self.study.corpora[corpus]
        if manifest.exists():
            with suppress(DataError, KeyError):  # a broken one is refused by the jobs that read the corpus
                return int(read_json(manifest)["rows"])
        if declared.source == "geoworld":
            return self.study.geoworld.passages
        if declared.passages:
            return declared.passages
        if declared.file and (raw := _bytes(Path(declared.file.path), declared.file.bytes)):
            packed = COMPRESSED if declared.file.path.endswith((".gz", ".bz2")) else 1.0
            return round(raw / packed / BYTES_PER_PASSAGE) + 1
        return ASSUMED_PASSAGES

    def dim(self) -> int:
        """Values of a vector of the study's encoder."""
        return load_declaration(self.study.embed.encoder, self.plan.config_dir).dim

    def parameters(self) -> int:
        """Numbers in the policy: of a small one by its layers, of another as its declaration says."""
        policy = self.study.policy
        if policy.source == "scratch":
            # Attention with half as many key and value heads (3 h^2) and a gated layer of width 3h (9 h^2).
            return policy.layers * 12 * policy.hidden_size**2 + policy.vocabulary * policy.hidden_size
        if policy.source == "package":
            return load_packaged_policy(str(policy.model), self.plan.config_dir).parameters
        return policy.parameters or ASSUMED_PARAMETERS

    def questions(self, question_set: str) -> int:
        """Questions of a set that are answered."""
        dataset, split = split_of(question_set)
        declared = self.study.datasets[dataset]
        if declared.reader == "geoworld":
            count = int(getattr(self.study.geoworld, f"{split}_questions"))
        else:
            file = declared.splits.get(split)
            count = (file.questions if file else None) or ASSUMED_QUESTIONS
        limit = self.study.evaluation.limit
        return min(count, limit) if limit else count


def _bytes(path: Path, declared: int | None) -> int:
    return path.stat().st_size if path.exists() else declared or 0
