"""Every path under results/ is made here. All of them are relative to `results` (default: `results`)."""

from __future__ import annotations

from pathlib import Path

PUBLISHED = ".published"  # ends the name of a question set's folder that was answered by the published protocol
UNLIMITED = ".unlimited"  # the same of one that was answered under evaluation.budgets.unlimited


class Results:
    """Paths of one study. Arguments may be Snakemake wildcards such as '{arm}'."""

    def __init__(self, root: str | Path = "results") -> None:
        self.root = Path(root)

    def questions(self, dataset: str, split: str) -> Path:
        return self.root / "questions" / f"{dataset}.{split}.parquet"

    def geoworld(self) -> Path:
        """Folder of the generated world: passages.jsonl, questions.{split}.jsonl, manifest.json."""
        return self.root / "geoworld"

    def corpus(self, corpus: str) -> Path:
        """Folder with passages.parquet and manifest.json."""
        return self.root / "corpus" / corpus

    def encoder(self, encoder: str) -> Path:
        """Folder of an encoder's weights in Hugging Face layout, with manifest.json."""
        return self.root / "encoders" / encoder

    def policy(self, name: str) -> Path:
        """Folder of a language model out of a package, in Hugging Face layout, with manifest.json."""
        return self.root / "policies" / name

    def embeddings(self, corpus: str, encoder: str) -> Path:
        """Folder with shard-{i}-of-{n}.npy and manifest.json."""
        return self.root / "embeddings" / f"{corpus}.{encoder}"

    def index(self, corpus: str, encoder: str, kind: str) -> Path:
        """Folder with index.faiss and manifest.json."""
        return self.root / "index" / f"{corpus}.{encoder}.{kind}"

    def bm25(self, corpus: str) -> Path:
        """Folder with bm25/ (as bm25s saves it) and manifest.json."""
        return self.root / "index" / f"{corpus}.bm25"

    def reranker(self, name: str) -> Path:
        """Folder of a cross-encoder in Hugging Face layout, with manifest.json."""
        return self.root / "rerankers" / name

    def reranked(self, index: Path, name: str) -> Path:
        """Folder whose manifest.json puts a reranker over an index."""
        return index.with_name(f"{index.name}.{name}")

    def warm_start(self, seed: int | str) -> Path:
        """Folder of the warm-started policy: policy/, metrics.jsonl, config.yaml, done.json."""
        return self.root / "warm_start" / f"seed{seed}"

    def train(self, arm: str, seed: int | str) -> Path:
        """Folder of one training run: config.yaml, metrics.jsonl, checkpoints/, policy/, done.json."""
        return self.root / "train" / arm / f"seed{seed}"

    def episodes(self, arm: str, seed: int | str, dataset: str) -> Path:
        return self.root / "eval" / arm / f"seed{seed}" / dataset / "episodes.parquet"

    def published_episodes(self, arm: str, seed: int | str, dataset: str) -> Path:
        """The episodes of a question set that was answered by the published protocol."""
        return self.root / "eval" / arm / f"seed{seed}" / f"{dataset}{PUBLISHED}" / "episodes.parquet"

    def unlimited_episodes(self, arm: str, seed: int | str, dataset: str) -> Path:
        """The episodes of a question set that was answered under evaluation.budgets.unlimited."""
        return self.root / "eval" / arm / f"seed{seed}" / f"{dataset}{UNLIMITED}" / "episodes.parquet"

    def judgements(self, arm: str, seed: int | str, dataset: str) -> Path:
        """What the judge said of the episodes beside it."""
        return self.root / "eval" / arm / f"seed{seed}" / dataset / "judgements.parquet"

    def judge_store(self) -> Path:
        """Every reply of a judge, so that nothing is asked twice."""
        return self.root / "judge" / "replies.db"

    def mlflow(self) -> Path:
        """Folder of the SQLite store (mlflow.db), artifacts/ and collected.json."""
        return self.root / "mlflow"

    def study(self) -> Path:
        """Which study this is, wherever its folder is moved or copied."""
        return self.root / "study.json"

    def table(self, name: str, extension: str) -> Path:
        return self.root / "tables" / f"{name}.{extension}"

    def findings(self) -> Path:
        """What the study found, in sentences."""
        return self.root / "tables" / "findings.md"

    def figure(self, name: str, extension: str) -> Path:
        return self.root / "figures" / f"{name}.{extension}"

    def report(self) -> Path:
        return self.root / "report" / "index.html"

    def config(self) -> Path:
        """The merged configuration of the study."""
        return self.root / "config.yaml"

    def log(self, rule: str, job: str = "job") -> Path:
        """What a job printed; `job` names the job among those of its rule."""
        return self.root / "logs" / rule / f"{job}.log"

    def benchmark(self, rule: str, job: str = "job") -> Path:
        """Seconds, memory and CPU time of a job, measured by Snakemake."""
        return self.root / "benchmarks" / rule / f"{job}.tsv"
