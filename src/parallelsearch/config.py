"""What a study can say: the typed sections of its configuration, closed to unknown keys. config_files.py reads them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

WARM_START = "warm-start"  # the name under which the untrained (warm-started) policy is evaluated beside the arms

SEMANTICS = Literal["paper", "released", "bounded", "search_r1_format", "f1", "research", "otc", "stepsearch"]
PROMPTS = Literal["short", "search_r1", "parallel", "examples", "r1", "research", "research_system"]
TAGS = Literal["search_r1", "research"]
PROMPT_TAGS = {"research": "research", "research_system": "research"} | dict.fromkeys(
    ("search_r1", "parallel", "examples", "r1"), "search_r1"
)  # the tags that a prompt explains; `short` explains none
STRATEGIES = Literal["search", "direct", "chain_of_thought", "rag", "ircot", "iter_retgen", "search_o1", "dag_plan"]
WITHOUT_SEARCH = ("direct", "chain_of_thought")  # strategies that never search
CORPUS_SOURCES = Literal["geoworld", "dpr", "wiki18", "flashrag", "qa_contexts", "mediawiki"]
READERS = Literal[
    "geoworld", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle", "nq", "triviaqa", "popqa", "multihop_rag"
]
# The algorithms that train a policy, and the strategies whose policy each can train.
TRAINABLE: dict[str, tuple[str, ...]] = {
    "ppo": ("search",),
    "grpo": ("search",),
    "sft": ("direct",),
    "rejection_sampling": ("search",),
}
SUPERVISED = ("sft", "rejection_sampling")  # algorithms without a reward
# Keys of the section training that only these algorithms read.
READ_BY: dict[str, tuple[str, ...]] = {
    "sft_learning_rate": SUPERVISED,
    "rejection_samples": ("rejection_sampling",),
    "rejection_keep": ("rejection_sampling",),
}
INDEX_KINDS = Literal["flat", "flat_fp16", "flat_int8", "ivf_flat", "ivf_pq", "hnsw"]


class Section(BaseModel):
    """A part of the configuration: frozen, and closed to keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RemoteFile(Section):
    """One input file: where it lies, and for a file that is fetched, from where and with which checksum."""

    path: str = Field(description="Path of the file, relative to the root of the checkout.")
    url: str | None = Field(None, description="Where the file is fetched from when it is absent.")
    sha256: str | None = Field(None, description="Checksum of the file, checked after a download; none: not known.")
    bytes: int | None = Field(None, ge=0, description="Size of the file, for planning disk space.")
    licence: str = Field("unknown", description="Licence of the content.")


class QuestionFile(RemoteFile):
    """The file of one split, and what has to be in it: a figure of another subset is not comparable."""

    questions: int | None = Field(None, ge=1, description="Questions of the whole split; checked when it is read.")
    structures: dict[str, int] = Field(
        default_factory=dict, description="Questions of each structure named here; checked when the split is read."
    )


class GeoWorldConfig(Section):
    """The generated encyclopedia and its questions."""

    seed: int = Field(0, ge=0, description="Seed of every choice the generator makes.")
    passages: int = Field(3600, ge=200, description="Number of passages.")
    train_questions: int = Field(4000, ge=8, description="Number of training questions.")
    dev_questions: int = Field(200, ge=8, description="Number of development questions.")
    test_questions: int = Field(600, ge=8, description="Number of test questions.")


class CorpusConfig(Section):
    """A collection of passages."""

    source: CORPUS_SOURCES = Field(description="Layout of the raw file.")
    file: RemoteFile | None = Field(None, description="The raw file; none for a generated corpus.")
    licence: str = Field("unknown", description="Licence of the text, copied into the manifest.")
    shards: int | None = Field(None, ge=1, description="Encoding jobs of this corpus, where not embed.shards.")


class DatasetConfig(Section):
    """A question-answering data set: its splits and the corpus its questions are searched in."""

    reader: READERS = Field(description="Which reader understands the files.")
    corpus: str = Field(description="Name of the corpus searched for these questions.")
    splits: dict[str, QuestionFile] = Field(default_factory=dict, description="Raw file of each split.")


class Bm25Config(Section):
    """BM25 over title and text, Lucene's variant. The defaults of k1 and b are Anserini's."""

    k1: float = Field(0.9, ge=0, description="Saturation of a word's frequency.")
    b: float = Field(0.4, ge=0, le=1, description="Weight of a passage's length.")
    stemmer: Literal["english", "none"] = Field("english", description="Snowball stemmer.")
    stopwords: Literal["english", "none"] = Field("english", description="Words that are left out.")


class HybridConfig(Section):
    """Reciprocal rank fusion of a dense index and BM25 (Cormack, Clarke and Buettcher, SIGIR 2009)."""

    dense: INDEX_KINDS = Field("flat", description="Kind of the FAISS index; its parameters are index.parameters.")
    candidates: int = Field(100, ge=1, description="Passages taken from each list before they are fused.")
    k: int = Field(60, ge=0, description="Constant added to every rank; 60 in the paper.")


class RerankerConfig(Section):
    """A cross-encoder that puts the first passages of an index in a new order."""

    model: str = Field(description="Name of a declaration in config/rerankers/.")
    candidates: int = Field(
        50, ge=1, description="Passages of the index that it scores for each query; no others are found."
    )


class IndexConfig(Section):
    """What is searched: a FAISS index over the embeddings, BM25, or both together; with or without a reranker."""

    kind: Literal[INDEX_KINDS, "bm25", "hybrid"] = Field("flat", description="Kind of FAISS index, bm25 or hybrid.")
    parameters: dict[str, int] = Field(default_factory=dict, description="Build and search parameters of the kind.")
    device: Literal["cpu", "cuda"] = Field("cpu", description="Where it is searched; cuda: split over all GPUs.")
    bm25: Bm25Config = Field(Bm25Config(), description="Settings of the kinds bm25 and hybrid.")
    hybrid: HybridConfig = Field(HybridConfig(), description="Settings of the kind hybrid.")
    reranker: RerankerConfig | None = Field(None, description="Second stage; none: the order of the index.")


class EmbedConfig(Section):
    """How passages are turned into vectors."""

    encoder: str = Field("multilingual-e5-small", description="Name of a declaration in config/encoders/.")
    shards: int = Field(1, ge=1, description="Number of shards that are encoded as separate jobs.")
    tokens_per_batch: int = Field(8192, ge=64, description="Size of a batch in tokens, padding included.")


class AgentConfig(Section):
    """The limits of an episode and what the model is shown. Lengths are in tokens of the policy's tokenizer."""

    strategy: STRATEGIES = Field("search", description="search: the agent's loop; the others are baselines.")
    prompt: PROMPTS = Field("short", description="Prompt template of the agent's loop.")
    tags: TAGS = Field("search_r1", description="Tags of the agent's loop; research: ReSearch's, its answer in a box.")
    top_k: int = Field(1, ge=1, description="Passages retrieved for each sub-query.")
    max_search_turns: int = Field(
        4, ge=0, description="Search turns; one more generation may give the answer. 0: a search is an invalid action."
    )
    max_sub_queries: int = Field(4, ge=1, description="Sub-queries searched in one turn; further ones are dropped.")
    max_generation_tokens: int = Field(64, ge=4, description="Tokens of one generation.")
    max_sub_query_result_tokens: int = Field(96, ge=8, description="Tokens shown for each sub-query's passages.")
    max_prompt_tokens: int = Field(96, ge=8, description="Tokens of the prompt.")
    max_response_tokens: int = Field(512, ge=16, description="Tokens of an episode after the prompt.")
    on_invalid: Literal["stop", "retry"] = Field("stop", description="What an invalid generation leads to.")
    max_single_hop_search_turns: int = Field(
        5, ge=1, description="Search turns on questions of structure single (search_o1)."
    )
    max_reasoning_turns: int = Field(15, ge=1, description="Generations of the reasoning model (search_o1).")
    max_document_chars: int = Field(3000, ge=100, description="Characters read of each passage (search_o1).")
    max_plan_questions: int = Field(8, ge=1, description="Sub-questions of a plan (dag_plan).")

    @model_validator(mode="after")
    def _parts_fit(self) -> AgentConfig:
        explained = PROMPT_TAGS.get(self.prompt, self.tags)
        if self.strategy == "search" and explained != self.tags:
            raise ValueError(
                f"agent.prompt '{self.prompt}' explains the tags '{explained}', but agent.tags is '{self.tags}';"
                f" set agent.tags to '{explained}' or choose another prompt."
            )
        if not self.max_search_turns and self.strategy not in ("search", *WITHOUT_SEARCH):
            raise ValueError(
                f"agent.max_search_turns is 0, but agent.strategy '{self.strategy}' searches; set it to 1 or more."
            )
        return self


class PolicyConfig(Section):
    """The language model that is trained."""

    source: Literal["scratch", "hub", "package"] = Field(
        "scratch", description="A small Qwen2 made here, a published model, or a model out of a Python package."
    )
    model: str | None = Field(None, description="Published model (hub), or name in config/policies (package).")
    revision: str | None = Field(None, description="Revision of the published model.")
    vocabulary: int = Field(1024, ge=300, description="Tokens of the byte-level BPE tokenizer (source: scratch).")
    hidden_size: int = Field(128, ge=16, description="Width (source: scratch).")
    layers: int = Field(4, ge=1, description="Transformer layers (source: scratch).")
    heads: int = Field(2, ge=1, description="Attention heads (source: scratch).")


class WarmStartConfig(Section):
    """Supervised training on demonstrations before reinforcement learning (source: scratch only)."""

    steps: int = Field(600, ge=1, description="Optimiser steps.")
    batch_size: int = Field(32, ge=1, description="Demonstrations a step.")
    learning_rate: float = Field(3e-3, gt=0, description="Peak learning rate (warm-up, then linear decay).")
    parallel_share: float = Field(
        0.3, ge=0, le=1, description="Share of demonstrations that search in parallel where both ways are possible."
    )


class SearchR1FormatConfig(Section):
    """Weights of Search-R1's format reward (arXiv 2505.15117, v0.3 of its code)."""

    structure: float = Field(
        0.2, ge=0, description="Lost by a right answer in a bad format, paid to a wrong one in a good one."
    )
    final: float = Field(0.1, ge=0, description="Paid to a wrong answer in a bad format; nothing without an answer.")


class OtcConfig(Section):
    """The tool reward of OTC (arXiv 2504.14870). Our source states neither alpha nor c."""

    alpha: float = Field(1.0, gt=0, description="Factor of the whole reward.")
    c: float = Field(4.0, gt=0, description="Smoothing constant: the larger, the less a search costs.")
    group: bool = Field(
        False, description="true (OTC-GRPO): fewest searches among a prompt's right rollouts are best; false: none is."
    )


class StepSearchConfig(Section):
    """Weights and switches of StepSearch's reward (arXiv 2505.15107)."""

    gamma_key: float = Field(0.618, ge=0, description="Weight of the search keys; 0: without them.")
    information_gain: bool = Field(True, description="Each search is rewarded for new gold text.")
    redundancy_penalty: bool = Field(True, description="Each search pays for passages that were found before.")


class RewardConfig(Section):
    """What an episode is worth. lambda_* and alpha are weights of paper, released and bounded."""

    semantics: SEMANTICS = Field(
        "paper",
        description="paper: equations 3 to 7; released: the published code; bounded: ours; others: other methods'.",
    )
    lambda_d: float = Field(0.15, ge=0, description="Weight of the decomposition reward.")
    lambda_s: float = Field(0.35, ge=0, description="Weight of the search-count reward.")
    lambda_f: float = Field(0.1, ge=0, description="Weight of the format reward.")
    alpha: float = Field(3.0, ge=0, description="Factor of lambda_d on questions that can be decomposed.")
    search_r1_format: SearchR1FormatConfig = Field(SearchR1FormatConfig(), description="Of that semantics.")
    otc: OtcConfig = Field(OtcConfig(), description="Of that semantics.")
    stepsearch: StepSearchConfig = Field(StepSearchConfig(), description="Of that semantics.")


class GuardConfig(Section):
    """When a training job is ended early: loss, KL, entropy or gradient norm not a finite number, or a collapse.

    A figure's smoothed value is its mean over `window` steps; it is compared with the run's own best before.
    """

    enabled: bool = Field(True, description="false: only a step full of infrastructure failures ends a job early.")
    window: int = Field(5, ge=1, description="Steps of the moving mean.")
    reward: float = Field(0.5, gt=0, description="Share of its best smoothed reward that a run may lose (0.1 always).")
    well_formed: float = Field(0.5, gt=0, description="Share of its best well-formed share that a run may lose.")
    entropy: float = Field(0.98, gt=0, description="Share of its highest smoothed entropy that a run may lose.")
    gibberish: float = Field(
        0.5, gt=0, le=1, description="Smoothed share of episodes without any tag, where it was once below half of this."
    )
    failures: float = Field(
        0.5, ge=0, le=1, description="Share of a step's episodes that may be lost to infrastructure failures."
    )


class ServerConfig(Section):
    """A language model behind an OpenAI-compatible URL."""

    url: str = Field(description="Base of the server's address, such as http://127.0.0.1:8000/v1.")
    model: str = Field(description="Name of the model there.")
    key_variable: str = Field("OPENAI_API_KEY", description="Environment variable that holds the server's key, if any.")
    timeout: float = Field(60.0, gt=0, description="Seconds of one request.")
    longest_wait: float = Field(10.0, ge=0, description="Seconds, at most, between two attempts.")


class SimulatorConfig(Section):
    """A language model in the place of the search engine while an arm is trained (ZeroSearch, arXiv 2505.04588)."""

    policy: str | None = Field(None, description="Name in config/policies of the model that is served beside the job.")
    server: ServerConfig | None = Field(None, description="A model that vLLM serves elsewhere; either this or policy.")
    p_start: float = Field(0.0, ge=0, le=1, description="Share of useless searches at the start of the training.")
    p_end: float = Field(0.5, ge=0, le=1, description="Share of useless searches at its end.")
    base: float = Field(4.0, gt=1, description="Base of the exponential curriculum between the two.")
    documents: int = Field(5, ge=1, description="Documents written for each query.")
    words: int = Field(30, ge=1, description="Words of a document, about.")
    max_tokens: int = Field(400, ge=8, description="Tokens of all documents of a query.")
    temperature: float = Field(0.8, ge=0, description="Sampling temperature of the simulating model.")

    @model_validator(mode="after")
    def _has_one_model(self) -> SimulatorConfig:
        if (self.policy is None) is (self.server is None):
            raise ValueError(
                f"training.simulator has {'neither' if self.policy is None else 'both'} of policy and server;"
                " name one model."
            )
        return self


class TrainingConfig(Section):
    """Training with veRL: reinforcement learning, or supervised learning from demonstrations."""

    sets: list[str] = Field(["geoworld.train"], description="Question sets, each DATASET.SPLIT.")
    algorithm: Literal["ppo", "grpo", "sft", "rejection_sampling"] = Field(
        "ppo",
        description="ppo: GAE with a critic; grpo: group-relative; sft: supervised, on question and answer;"
        " rejection_sampling: supervised, on the initial policy's own correct episodes.",
    )
    device: Literal["cpu", "cuda"] = Field("cpu", description="Where the job runs.")
    nodes: int = Field(1, ge=1, description="Nodes of the job.")
    gpus_per_node: int = Field(1, ge=1, description="GPUs of each node (on the CPU: ranks).")
    rollout_engine: Literal["hf", "vllm"] = Field("hf", description="Generation engine.")
    gpu_memory_utilization: float = Field(0.6, gt=0, lt=1, description="Share of GPU memory given to vLLM.")
    steps: int = Field(9, ge=0, description="Training steps; 0: the initial policy answers, nothing is trained.")
    batch_size: int = Field(96, ge=1, description="Prompts a step (supervised: demonstrations a step).")
    mini_batch_size: int = Field(48, ge=1, description="Prompts of an optimiser step, with all their episodes.")
    micro_batch_size: int = Field(16, ge=1, description="Episodes of a forward pass.")
    rollouts_per_prompt: int = Field(1, ge=1, description="Episodes of each prompt (more than 1 for grpo).")
    actor_learning_rate: float = Field(1e-4, gt=0, description="Actor learning rate.")
    critic_learning_rate: float = Field(1e-3, gt=0, description="Critic learning rate.")
    actor_warmup_ratio: float = Field(0.0, ge=0, le=1, description="Share of steps in which the actor rate rises.")
    critic_warmup_ratio: float = Field(0.0, ge=0, le=1, description="Share of steps in which the critic rate rises.")
    gamma: float = Field(1.0, ge=0, le=1, description="Discount.")
    gae_lambda: float = Field(1.0, ge=0, le=1, description="GAE lambda.")
    clip_ratio: float = Field(0.2, gt=0, description="PPO clip range.")
    value_clip: float = Field(0.5, gt=0, description="Clip range of the value loss.")
    kl_coefficient: float = Field(0.0, ge=0, description="KL penalty in the reward (ppo) or in the loss (grpo).")
    entropy_coefficient: float = Field(0.0, ge=0, description="Entropy bonus.")
    temperature: float = Field(1.0, gt=0, description="Sampling temperature of rollouts.")
    top_p: float = Field(1.0, gt=0, le=1, description="Nucleus of rollouts.")
    mask_observations: bool = Field(
        True, description="false: retrieved text is trained on as if the model had written it (Search-R1's ablation)."
    )
    offload: bool = Field(False, description="FSDP parameters and optimiser state in CPU memory between steps.")
    save_every: int = Field(3, ge=1, description="Steps between checkpoints.")
    sft_learning_rate: float = Field(1e-3, gt=0, description="Peak learning rate of sft and rejection_sampling.")
    rejection_samples: int = Field(5, ge=1, description="Episodes sampled of each prompt by rejection_sampling.")
    rejection_keep: Literal["all", "one"] = Field(
        "all", description="Which correct, well-formed episodes of a prompt are learned from: all, or the first one."
    )
    guard: GuardConfig = Field(GuardConfig(), description="What ends a job early.")
    simulator: SimulatorConfig | None = Field(
        None, description="A model that plays the search engine; none: the index is searched."
    )


class JudgeConfig(ServerConfig):
    """A language model behind an OpenAI-compatible URL that judges answers."""

    in_flight: int = Field(8, ge=1, description="Requests in flight.")


class PublishedProtocol(Section):
    """How the published evaluation answers: it samples, and its loader drops the last incomplete batch of a subset."""

    temperature: float = Field(1.0, ge=0, description="Sampling temperature.")
    drop_last: int = Field(256, ge=0, description="Validation batch size; each structure's last partial batch goes.")


class EvaluationConfig(Section):
    """Which question sets every arm answers, and how."""

    sets: list[str] = Field(["geoworld.test"], description="Question sets, each DATASET.SPLIT.")
    limit: int = Field(0, ge=0, description="At most so many questions of each set; 0: all.")
    drop_last: int = Field(
        0, ge=0, description="Leave out each structure's last incomplete batch of so many questions; 0: keep all."
    )
    temperature: float = Field(0.0, ge=0, description="0: greedy decoding.")
    batch_size: int = Field(64, ge=1, description="Episodes in flight.")
    confidence: float = Field(0.95, gt=0, lt=1, description="Level of the intervals.")
    bootstrap_samples: int = Field(2000, ge=100, description="Resamples of each bootstrap interval.")
    device: Literal["cpu", "cuda"] = Field("cpu", description="Where generation runs (engines hf and vllm).")
    engine: Literal["hf", "vllm", "openai"] = Field(
        "hf", description="hf: Transformers; vllm: in this process; openai: the server, whose model is then evaluated."
    )
    server: ServerConfig | None = Field(
        None, description="Where the policy is served (engine: openai); its tokenizer is that of the policy's folder."
    )
    published_protocol: PublishedProtocol | None = Field(
        None, description="Answer every set a second time as the published evaluation does; none: only as above."
    )
    judge: JudgeConfig | None = Field(None, description="LLM-as-judge beside exact match; none: nobody is asked.")

    @model_validator(mode="after")
    def _has_its_server(self) -> EvaluationConfig:
        if self.engine == "openai" and self.server is None:
            raise ValueError(
                "evaluation.engine is 'openai', but evaluation.server is missing; give a server's url and its model."
            )
        return self


class TrackingConfig(Section):
    """MLflow."""

    experiment: str = Field("parallelsearch", description="Experiment name.")
    uri: str | None = Field(None, description="Tracking server; none: the SQLite store under results/mlflow.")
    traces_per_run: int = Field(12, ge=0, description="Episodes of each arm stored as MLflow traces.")


class ArmConfig(Section):
    """One reward arm, complete: what the overlay in config/arms/ says, over the study's own sections."""

    name: str
    description: str = ""
    agent: AgentConfig
    reward: RewardConfig
    training: TrainingConfig
    policy_of: str | None = Field(None, description="Arm whose trained policy answers; none: its own, or the initial.")

    @model_validator(mode="after")
    def _is_trainable(self) -> ArmConfig:
        if self.policy_of and self.training.steps:
            raise ValueError(
                f"policy_of is '{self.policy_of}', so this arm is answered by that arm's policy; set training.steps to"
                f" 0 (it is {self.training.steps})."
            )
        if self.reward.semantics in ("released", "stepsearch") and self.agent.tags != "search_r1":
            raise ValueError(
                f"reward.semantics is '{self.reward.semantics}', which reads Search-R1's tags, but agent.tags is"
                f" '{self.agent.tags}'; choose other semantics or agent.tags 'search_r1'."
            )
        algorithm, strategy = self.training.algorithm, self.agent.strategy
        if self.training.steps and strategy not in TRAINABLE[algorithm]:
            raise ValueError(
                f"agent.strategy is '{strategy}', but training.algorithm '{algorithm}' trains"
                f" {' or '.join(TRAINABLE[algorithm])}; set training.steps to 0, or choose another."
            )
        return self


class ArmOverride(Section):
    """What a study changes in one arm: keys of its sections, merged over the arm's overlay and validated with it."""

    agent: dict[str, Any] = Field(default_factory=dict, description="Keys of the section agent.")
    reward: dict[str, Any] = Field(default_factory=dict, description="Keys of the section reward.")
    training: dict[str, Any] = Field(default_factory=dict, description="Keys of the section training.")


class StudyConfig(Section):
    """A whole study."""

    results: str = Field("results", description="Folder of all outputs.")
    seeds: list[int] = Field([0], min_length=1, description="Seeds; each arm is trained once for each.")
    arms: list[str] = Field(min_length=1, description="Names of overlays in config/arms/.")
    arm_overrides: dict[str, ArmOverride] = Field(
        default_factory=dict, description="Arm -> what this study, and no other, changes in it (a published rate, say)."
    )
    baseline: str = Field("search-r1", description="Arm the others are compared with.")
    geoworld: GeoWorldConfig = GeoWorldConfig()
    corpora: dict[str, CorpusConfig]
    datasets: dict[str, DatasetConfig]
    embed: EmbedConfig = EmbedConfig()
    index: IndexConfig = IndexConfig()
    agent: AgentConfig = AgentConfig()
    policy: PolicyConfig = PolicyConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    reward: RewardConfig = RewardConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    tracking: TrackingConfig = TrackingConfig()

    @model_validator(mode="after")
    def _names_exist(self) -> StudyConfig:
        for name, dataset in self.datasets.items():
            if dataset.corpus not in self.corpora:
                raise ValueError(
                    f"datasets.{name}.corpus is '{dataset.corpus}', which is not in corpora: {', '.join(self.corpora)}."
                )
        for key, sets in (("training", self.training.sets), ("evaluation", self.evaluation.sets)):
            for entry in sets:
                known, _, split = entry.partition(".")
                if known not in self.datasets or not split:
                    raise ValueError(
                        f"{key}.sets has '{entry}', which is not DATASET.SPLIT of a known data set:"
                        f" {', '.join(self.datasets)}."
                    )
        return self
