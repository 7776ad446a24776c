"""What each kind of job asks a cluster for: memory (MB), time (minutes) and cores, computed from the work it has.

A site overrides any of it under `set-resources` in profiles/slurm/config.yaml. On one machine only the memory counts:
it decides which jobs run side by side. Figures marked `measured` are of two threads of one shared core (2.0 GHz, AMX);
the others are estimates, made on the large side, since a job that asked for too little is killed. A second attempt asks
for half as much again.
"""

from __future__ import annotations

from math import ceil
from pathlib import Path

from parallelsearch.config import SUPERVISED, IndexConfig
from parallelsearch.plan.job_sizes import BYTES_PER_PASSAGE, JobSizes
from parallelsearch.retrieval.indexes.calibration import estimate
from parallelsearch.retrieval.indexes.kinds import complete_parameters
from parallelsearch.retrieval.indexes.plan import FLOAT16, build_bytes, index_bytes
from parallelsearch.runs.checkpoints import ACTOR_BYTES, CRITIC_BYTES, POLICY_BYTES
from parallelsearch.runs.run_lock import earlier_job
from parallelsearch.training.process.devices import node_count

MB = 1_000_000
PER_ATTEMPT = 0.5  # more of memory and time with each further attempt
SAFETY = 2.0  # a time limit is this multiple of the time that is expected
LONGEST = 4320  # minutes of a training job: what is left is done by the next attempt, from the last checkpoint
SHORTEST = 30  # minutes; a limit costs nothing while it is not reached
READ_BYTES = 200 * MB  # a second, from a shared file system

# CPU
CPU_PASSAGES = 49.0  # encoded a second: multilingual-e5-small, real passages, measured
CPU_PARAMETERS = 21_000_000  # of that encoder without its embeddings, to scale others by
CPU_EPISODE = 0.2  # seconds a training episode (15 to 20 s for 96), measured with a policy of 850,000 parameters
CPU_QUESTION = 0.08  # seconds an answered question (48 s at most for 600), measured with the same
CPU_DEMONSTRATION = 0.035  # seconds (9 minutes at most for 600 steps of 59 with exercises), measured with the same
CPU_POLICY = 850_000  # its parameters

# GPU (estimates: nothing here was measured on a GPU)
GPU_FLOPS = 3e14  # a second and GPU, of training: a third of what an H100 can do in bfloat16
GPU_TOKENS = 6e13  # generated a second and GPU, times parameters: 8,000 tokens of a model of 7.6 billion
GPU_PASSAGES = 1000.0  # encoded a second: e5-base-v2, 256 tokens
RANK_MB = 8000  # host memory of a rank: CUDA, vLLM, Ray's workers
CORES_PER_GPU = 12
EPISODE_TOKENS = 1000  # generated in an episode
EPISODE_SEARCHES = 6


class JobNeeds:
    """Of the jobs of one study. `attempt` counts from 1, as Snakemake does."""

    def __init__(self, sizes: JobSizes) -> None:
        self.sizes = sizes
        self.study = sizes.study
        self.plan = sizes.plan

    # What Slurm is told of training jobs ------------------------------------------------------------------------------

    def gpus(self, name: str) -> int:
        """GPUs of an arm's training job on one node; 0 on the CPU."""
        training = self.plan.arm(name).training
        return training.gpus_per_node if training.device == "cuda" else 0

    def gres(self, name: str) -> str:
        """What an arm's training job asks of each of its nodes, as Slurm's --gres: 'gpu:8'; nothing on the CPU."""
        return f"gpu:{gpus}" if (gpus := self.gpus(name)) else ""

    def tasks(self, name: str) -> int:
        """Slurm's --ntasks of a training job on CPUs, one a node; 0 with GPUs: the executor would make it one a GPU."""
        return 0 if self.gpus(name) else self.nodes(name)

    def after_earlier_job(self, run: Path) -> str:
        """sbatch's option that lets a job wait for one of a lost Snakemake that still writes to the same run."""
        job = earlier_job(run)
        return f"--dependency=afterany:{job}" if job else ""

    def nodes(self, name: str) -> int:
        return node_count(self.plan.arm(name).training)

    # Corpus and index ---------------------------------------------------------------------------------------------

    def corpus_mb(self, threads: int, attempt: int) -> int:
        """Passages are written in groups; each worker that strips a dump takes 250 MB at most (measured)."""
        return _more(1000 + 250 * threads, attempt)

    def corpus_minutes(self, corpus: str, attempt: int) -> int:
        return _minutes(self.sizes.passages(corpus) / 5000, attempt)  # estimated: 5,000 passages a second

    def corpus_cores(self, corpus: str) -> int:
        """Only a dump has work for several processes."""
        return 16 if self.study.corpora[corpus].source == "mediawiki" else 2

    def embed_gpus(self) -> int:
        """A study that trains or answers on GPUs encodes its passages there, too."""
        return int("cuda" in (self.study.training.device, self.study.evaluation.device))

    def embed_mb(self, corpus: str, attempt: int) -> int:
        rows = self._shard(corpus)
        return _more(3000 + rows * (self.sizes.dim() * FLOAT16 + BYTES_PER_PASSAGE) / MB, attempt)

    def embed_minutes(self, corpus: str, attempt: int) -> int:
        dim = self.sizes.dim()
        on_cpu = CPU_PASSAGES * (CPU_PARAMETERS / (12 * 12 * dim**2))  # all encoders here have 12 layers
        return _minutes(self._shard(corpus) / (GPU_PASSAGES if self.embed_gpus() else on_cpu), attempt)

    def embed_cores(self, corpus: str) -> int:
        return 8 if self.embed_gpus() else _cores(self._shard(corpus) / 1000)

    def index_mb(self, corpus: str, attempt: int) -> int:
        """What FAISS holds while it builds (retrieval/indexes/plan.py), and the process."""
        return _more(3000 + build_bytes(*self._index(corpus)) / MB, attempt)

    def index_minutes(self, corpus: str, attempt: int) -> int:
        at = self._index(corpus)
        read = at[1] * at[2] * FLOAT16 + index_bytes(*at)
        return _minutes(estimate(*at).build_seconds / self.index_cores(corpus) + read / READ_BYTES, attempt)

    def index_cores(self, corpus: str) -> int:
        return _cores(self.sizes.passages(corpus) / 10_000)

    def bm25_mb(self, corpus: str, attempt: int) -> int:
        """Word numbers and scores of every passage while BM25's index is built: 2,000 bytes a passage, estimated."""
        return _more(2000 + self.sizes.passages(corpus) * 2000 / MB, attempt)

    def bm25_minutes(self, corpus: str, attempt: int) -> int:
        return _minutes(self.sizes.passages(corpus) / 3000, attempt)  # estimated: 3,000 passages a second

    # Policies -----------------------------------------------------------------------------------------------------

    def warm_start_mb(self, attempt: int) -> int:
        return _more(4000 + self.sizes.parameters() * ACTOR_BYTES / MB, attempt)

    def warm_start_minutes(self, attempt: int) -> int:
        config = self.study.warm_start
        return _minutes(config.steps * config.batch_size * 1.9 * CPU_DEMONSTRATION * self._size(), attempt)

    def policy_cores(self) -> int:
        """Of a job that trains or asks a policy on CPUs: a small one gains nothing from many."""
        return _cores(self.sizes.parameters() / 250_000)

    def train_mb(self, arm: str, attempt: int) -> int:
        """Of each node: its ranks, what FSDP offloads, a copy of the policy as it is saved, and the retriever."""
        training, parameters = self.plan.arm(arm).training, self.sizes.parameters()
        state = (ACTOR_BYTES + (CRITIC_BYTES if training.algorithm == "ppo" else 0)) * parameters
        if training.device == "cpu":
            return _more(5000 + state / MB, attempt)
        offloaded = state / training.nodes if training.offload else 0
        ranks = RANK_MB * training.gpus_per_node
        need = 4000 + ranks + (offloaded + POLICY_BYTES * parameters) / MB + self._retriever_mb(arm)
        return _more(1.25 * need, attempt)

    def train_minutes(self, arm: str) -> int:
        """A job that reaches its limit goes on from its last step: a further attempt asks for no more."""
        training = self.plan.arm(arm).training
        episodes = training.steps * training.batch_size * training.rollouts_per_prompt
        if training.device == "cpu":
            return min(LONGEST, _minutes(180 + episodes * CPU_EPISODE * self._size(), 1))
        gpus, parameters = training.nodes * training.gpus_per_node, self.sizes.parameters()
        agent = self.plan.arm(arm).agent
        tokens = episodes * (agent.max_prompt_tokens + agent.max_response_tokens)
        # Six operations for each number and token of an update, two for a forward pass: PPO updates actor and critic
        # and makes three passes (old policy, reference, values), GRPO one update and two passes.
        passes = 6 if training.algorithm in SUPERVISED else 18 if training.algorithm == "ppo" else 10
        seconds = tokens * parameters * passes / GPU_FLOPS / gpus
        if training.algorithm != "sft":
            sampled = episodes * (training.rejection_samples if training.algorithm in SUPERVISED else 1)
            seconds += sampled * EPISODE_TOKENS * parameters / GPU_TOKENS / gpus
            seconds += self._search_seconds(arm, sampled * EPISODE_SEARCHES)
        return min(LONGEST, _minutes(1200 + seconds, 1))

    def train_cores(self, arm: str) -> int:
        training = self.plan.arm(arm).training
        return CORES_PER_GPU * training.gpus_per_node if training.device == "cuda" else self.policy_cores()

    # Answers ------------------------------------------------------------------------------------------------------

    def evaluate_mb(self, question_set: str, attempt: int) -> int:
        corpus, parameters = self.plan.corpus_of(question_set), self.sizes.parameters()
        need = 1000 + POLICY_BYTES * parameters / MB + self._open_mb(corpus)
        return _more(need + (RANK_MB if self.study.evaluation.device == "cuda" else 0), attempt)

    def evaluate_minutes(self, question_set: str, attempt: int, unlimited: bool = False) -> int:
        """`unlimited`: of the evaluation under larger limits, longer by as much as its episodes can be."""
        longer, budgets = 1.0, self.study.evaluation.budgets
        if unlimited and budgets:
            agent = self.study.agent
            longer = max(
                1.0,
                budgets.unlimited.max_search_turns / max(1, agent.max_search_turns),
                budgets.unlimited.max_response_tokens / agent.max_response_tokens,
            )
        asked, at = self.sizes.questions(question_set) * longer, self._index(self.plan.corpus_of(question_set))
        if self.study.evaluation.device == "cpu":
            return _minutes(60 + asked * CPU_QUESTION * self._size(), attempt)
        generated = asked * EPISODE_TOKENS * self.sizes.parameters() / GPU_TOKENS
        searched = asked * EPISODE_SEARCHES / estimate(*at).batch_queries_per_second / self.evaluate_cores()
        return _minutes(600 + index_bytes(*at) / READ_BYTES + generated + searched, attempt)

    def evaluate_cores(self) -> int:
        return 16 if self.study.evaluation.device == "cuda" else 2

    # Parts --------------------------------------------------------------------------------------------------------

    def _shard(self, corpus: str) -> float:
        """Passages of one shard."""
        return self.sizes.passages(corpus) / len(self.plan.shards(corpus))

    def _index(self, corpus: str) -> tuple[str, int, int, dict[str, int]]:
        """Kind, rows, dimension and parameters of a corpus's dense index."""
        rows, dim, kind = self.sizes.passages(corpus), self.sizes.dim(), self.plan.dense_kind
        config = IndexConfig.model_validate({"kind": kind, "parameters": self.study.index.parameters})
        return kind, rows, dim, complete_parameters(config, rows, dim)

    def _open_mb(self, corpus: str) -> float:
        """An open index, its encoder and the texts of its passages."""
        return (index_bytes(*self._index(corpus)) + self.sizes.passages(corpus) * BYTES_PER_PASSAGE) / MB + 1000

    def _retriever_mb(self, arm: str) -> float:
        return self._open_mb(self.plan.training_corpus(arm))

    def _search_seconds(self, arm: str, queries: float) -> float:
        at = self._index(self.plan.training_corpus(arm))
        return queries / estimate(*at).batch_queries_per_second / (self.train_cores(arm) / 2)

    def _size(self) -> float:
        """Of the policy, against the one that CPU figures were measured with."""
        return max(1.0, self.sizes.parameters() / CPU_POLICY)


def _more(need: float, attempt: int) -> int:
    """`need`, and half as much again with each further attempt."""
    return ceil(need * (1 + PER_ATTEMPT * (attempt - 1)))


def _minutes(seconds: float, attempt: int) -> int:
    """A time limit for a job that is expected to take `seconds`."""
    return max(SHORTEST, _more(SAFETY * seconds / 60, attempt))


def _cores(parts: float) -> int:
    """Cores for work that divides into so many parts worth a core: 2 to 16."""
    return max(2, min(16, ceil(parts)))
