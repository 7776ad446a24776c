"""What a plan refuses, and the slices of settings that decide what runs again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from parallelsearch.config_files import CONFIG_DIR, merge, read_yaml
from parallelsearch.errors import ConfigError
from parallelsearch.plan.planning import StudyPlan
from parallelsearch.plan.settings_slices import canonical

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def plan(overlay: dict[str, Any] | None = None, study: str | None = None) -> StudyPlan:
    values = read_yaml(CONFIG_DIR / "config.yaml")
    if study:
        values = merge(values, read_yaml(CONFIG_DIR / f"{study}.yaml"))
    return StudyPlan.from_values(merge(values, overlay or {}))


@pytest.mark.parametrize(
    ("overlay", "named"),
    [
        ({"trainin": {"steps": 5}}, ["'trainin'", "{'steps': 5}", "training, evaluation"]),
        ({"training": {"stepz": 5}}, ["'training.stepz'", "5", "steps, batch_size"]),
        ({"training": {"steps": "many"}}, ["'training.steps'", "'many'", "integer"]),
        ({"training": {"steps": -1}}, ["'training.steps' is -1", "greater than or equal to 0"]),
        ({"agent": {"strategy": "rag"}}, ["arm search-r1", "agent.strategy is 'rag'", "set training.steps to 0"]),
        ({"agent": {"strategy": "self-ask"}}, ["'agent.strategy' is 'self-ask'", "'ircot'"]),
        ({"training": {"algorithm": "dpo"}}, ["'training.algorithm' is 'dpo'", "'ppo'", "'grpo'"]),
        ({"training": {"sets": ["geoworld"]}}, ["training.sets", "'geoworld'", "DATASET.SPLIT"]),
        ({"arms": ["search-r1", "paralelsearch"]}, ["'paralelsearch'", "parallelsearch", "no-search-count-reward"]),
        ({"arms": []}, ["'arms' is []", "at least 1"]),
        ({"baseline": "nothing"}, ["baseline is 'nothing'", "search-r1, parallelsearch"]),
        ({"evaluation": {"sets": ["hotpot.dev"]}}, ["evaluation.sets has 'hotpot.dev'", "geoworld"]),
        ({"evaluation": {"sets": ["geoworld.validation"]}}, ["'geoworld.validation'", "train, dev, test"]),
        ({"datasets": {"geoworld": {"reader": "squad"}}}, ["'datasets.geoworld.reader' is 'squad'", "'hotpotqa'"]),
        ({"datasets": {"geoworld": {"corpus": "wiki"}}}, ["datasets.geoworld.corpus is 'wiki'", "geoworld"]),
        ({"corpora": {"geoworld": {"source": "wiki18"}}}, ["corpora.geoworld.file is missing"]),
        ({"embed": {"encoder": "bert"}}, ["embed.encoder is 'bert'", "e5-base-v2, multilingual-e5-small"]),
        ({"index": {"kind": "tfidf"}}, ["'index.kind' is 'tfidf'", "'flat'", "'bm25' or 'hybrid'"]),
        ({"index": {"bm25": {"k": 1}}}, ["'index.bm25.k'", "k1, b, stemmer, stopwords"]),
        ({"index": {"reranker": {"model": "bge"}}}, ["index.reranker.model is 'bge'", "ms-marco-minilm-l6-v2"]),
        ({"evaluation": {"engine": "openai"}}, ["evaluation.engine is 'openai'", "evaluation.server is missing"]),
        ({"evaluation": {"engine": "tgi"}}, ["'evaluation.engine' is 'tgi'", "'hf', 'vllm' or 'openai'"]),
        ({"evaluation": {"budgets": {"llm_calls": [3, 2]}}}, ["evaluation.budgets.llm_calls is [3, 2]", "sort it"]),
        ({"evaluation": {"budgets": {"llm_calls": [2, 2]}}}, ["2 is given twice"]),
        ({"evaluation": {"budgets": {"llm_calls": [1]}}}, ["'evaluation.budgets.llm_calls.0' is 1", "equal to 2"]),
        ({"evaluation": {"budgets": {"llm_calls": [8]}}}, ["llm_calls has 8", "unlimited allows 7", "raise that"]),
        ({"evaluation": {"budgets": {"response_tokens": [2048]}}}, ["response_tokens has 2048", "allows 1024"]),
        ({"evaluation": {"budgets": {"llm_calls": [], "response_tokens": []}}}, ["budgets names no budget"]),
        ({"seeds": "zero"}, ["'seeds' is 'zero'", "list"]),
        ({"policy": {"source": "hub"}}, ["policy.source is 'hub', but policy.model is not set"]),
        ({"policy": {"source": "package", "model": "gpt2"}}, ["policy.model is 'gpt2'", "smollm2-135m-instruct"]),
    ],
)
def test_a_wrong_setting_is_named_with_its_value_and_what_is_allowed(overlay: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(ConfigError) as refusal:
        plan(overlay)
    for words in named:
        assert words in str(refusal.value)


def test_training_sets_of_two_corpora_are_refused_with_the_names_of_both() -> None:
    with pytest.raises(ConfigError, match=r"geoworld, wiki18.*one job searches one corpus"):
        plan({"training": {"sets": ["geoworld.train", "nq.train"]}}, study="paper")


def test_a_split_without_a_file_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ConfigError, match=r"'hotpotqa\.test' has no file; datasets\.hotpotqa\.splits knows: train, dev"
    ):
        plan({"evaluation": {"sets": ["hotpotqa.test"]}}, study="paper")


def test_equal_settings_give_equal_text_whatever_their_order() -> None:
    assert canonical({"b": 1, "a": {"d": 2.0, "c": "é"}}) == canonical({"a": {"c": "é", "d": 2.0}, "b": 1})
    assert json.loads(canonical({"a": "é"})) == {"a": "é"}


def test_a_weight_of_the_study_reaches_only_arms_that_do_not_set_it() -> None:
    before, after = plan(), plan({"reward": {"lambda_f": 0.2}})
    assert before.train_settings("parallelsearch") != after.train_settings("parallelsearch")
    assert before.train_settings("search-r1") == after.train_settings("search-r1")  # its overlay sets lambda_f: 0
    assert before.warm_start_settings() == after.warm_start_settings()
    assert before.index_settings() == after.index_settings()


def test_what_only_the_report_reads_reaches_no_job_before_it() -> None:
    before = plan()
    after = plan({"evaluation": {"confidence": 0.9}, "tracking": {"traces_per_run": 3}, "seeds": [0, 1]})
    for arm in before.evaluated:
        assert before.evaluate_settings(arm) == after.evaluate_settings(arm)
    assert before.train_settings("parallelsearch") == after.train_settings("parallelsearch")
    assert before.report_settings() != after.report_settings()
    assert before.tracking_settings() != after.tracking_settings()


def test_another_engine_answers_again_and_trains_nothing_again() -> None:
    before = plan()
    server = {"url": "http://127.0.0.1:8000/v1", "model": "m"}
    after = plan({"evaluation": {"engine": "openai", "server": server}})
    for arm in before.evaluated:
        assert before.evaluate_settings(arm) != after.evaluate_settings(arm)
        assert json.loads(after.evaluate_settings(arm))["evaluation"]["server"]["model"] == "m"
    for arm in before.trained_arms:
        assert before.train_settings(arm) == after.train_settings(arm)
    assert before.warm_start_settings() == after.warm_start_settings()
    assert plan(study="paper").study.evaluation.engine == "vllm"


def test_a_simulated_search_needs_the_model_that_simulates() -> None:
    study = plan({"arms": ["search-r1", "zerosearch", "zerosearch-small"]})
    assert study.simulator("zerosearch-small") == [Path("results/policies/smollm2-135m-instruct")]
    assert study.simulator("zerosearch") == study.simulator("search-r1") == []
    # ZeroSearch, section 4 and its scripts: 203 steps of 64 questions with 5 episodes each, noise from 0 to 0.5, b = 4.
    training = plan(study="paper").arm("zerosearch").training
    sizes = (training.steps, training.batch_size, training.rollouts_per_prompt)
    assert (training.algorithm, *sizes) == ("grpo", 203, 64, 5)
    assert training.simulator is not None
    assert (training.simulator.p_start, training.simulator.p_end, training.simulator.base) == (0, 0.5, 4)


def test_the_papers_study_trains_a_published_model_on_eight_gpus_with_the_papers_hyperparameters() -> None:
    paper = plan(study="paper")
    assert paper.initial_policy(0) == "Qwen/Qwen2.5-7B-Instruct"
    assert paper.initial_marker(0) == [] and "warm-start" not in paper.evaluated
    arm = paper.arm("parallelsearch")
    # Appendix A.4 and section 3 of the paper.
    assert (arm.training.batch_size, arm.training.mini_batch_size, arm.training.micro_batch_size) == (512, 256, 64)
    assert (arm.training.actor_learning_rate, arm.training.critic_learning_rate) == (1e-6, 1e-5)
    assert (arm.training.actor_warmup_ratio, arm.training.critic_warmup_ratio) == (0.285, 0.015)
    assert (arm.training.kl_coefficient, arm.training.clip_ratio, arm.training.steps) == (0.001, 0.2, 500)
    assert (arm.reward.lambda_d, arm.reward.lambda_s, arm.agent.top_k, arm.agent.prompt) == (0.15, 0.35, 3, "parallel")
    assert paper.arm("search-r1-original-prompt").agent.prompt == "search_r1"
    # The seven cells of Table 4.
    cells = {(paper.arm(name).reward.lambda_d, paper.arm(name).reward.lambda_s) for name in paper.study.arms}
    assert cells >= {(0, 0.35), (0.15, 0.35), (0.35, 0.35), (0.5, 0.35), (0.15, 0), (0.15, 0.15), (0.15, 0.5)}


def test_a_published_model_can_be_pinned_to_a_revision() -> None:
    pinned = plan({"policy": {"revision": "abc123"}}, study="paper")
    assert pinned.initial_policy(0) == "Qwen/Qwen2.5-7B-Instruct@abc123"


def test_a_data_sets_table_is_made_from_its_own_episodes_and_the_others_from_everything() -> None:
    paper = plan(study="paper")
    hotpotqa = paper.table_inputs("hotpotqa_by_structure")
    arms = len(paper.study.arms)
    assert {path.parent.name for path in hotpotqa} == {"hotpotqa.dev", "hotpotqa.dev.unlimited"}
    assert [path.parent.name for path in paper.table_inputs("hotpotqa_comparison")] == ["hotpotqa.dev"] * arms
    asked_only = 8  # the parallel prompt and the seven inference baselines have no run of their own
    assert len(paper.table_inputs("ablation_grid")) == arms * 8 + arms - asked_only  # episodes of eight sets, and runs
    assert plan().tables[0] == "geoworld_by_structure"


def test_an_arm_without_training_steps_is_answered_by_the_initial_policy() -> None:
    study = plan({"arms": ["search-r1", "rag"]})
    assert study.trained_arms == ["search-r1"]
    assert study.policy("rag", 3) == study.policy("warm-start", 3) == "results/warm_start/seed3"
    assert study.policy_marker("rag", 3) == [Path("results/warm_start/seed3/done.json")]
    assert study.policy("search-r1", 3) == "results/train/search-r1/seed3"
    assert study.trained() == [Path("results/train/search-r1/seed0/done.json")]


def test_the_study_of_a_packaged_model_trains_nothing_and_has_no_table_of_training() -> None:
    study = plan(
        {
            "policy": {"source": "package", "model": "smollm2-135m-instruct"},
            "arms": ["direct", "rag"],
            "baseline": "rag",
            "evaluation": {"sets": ["geoworld.test"]},
        }
    )
    assert study.question_sets == ["geoworld.test"] and study.trained() == []
    assert study.evaluated == ["direct", "rag"]
    assert study.policy_marker("rag", 0) == [Path("results/policies/smollm2-135m-instruct/manifest.json")]
    assert "training_summary" not in study.tables
    assert "by_structure" in study.figures and not {"training_curves", "ablation_grid"} & set(study.figures)


def test_arms_that_learn_from_demonstrations_are_trained_but_have_no_weights_to_compare() -> None:
    study = plan({"arms": ["sft", "rejection-sampling", "rag"], "baseline": "rag"})
    assert study.trained_arms == ["sft", "rejection-sampling"]
    assert study.policy("sft", 0) == "results/train/sft/seed0"
    assert "training_summary" in study.tables and "ablation_grid" not in study.tables
    assert "training_curves" in study.figures and "ablation_grid" not in study.figures
    assert "ablation_grid" in plan({"arms": ["sft", "search-r1"]}).tables


def test_what_only_supervised_training_reads_reaches_no_other_job() -> None:
    changed = plan({"training": {"sft_learning_rate": 0.5, "rejection_samples": 2}})
    assert changed.train_settings("search-r1") == plan().train_settings("search-r1")
    sft = json.loads(changed.train_settings("sft"))["training"]
    assert sft["sft_learning_rate"] == 0.5 and "rejection_samples" not in sft


def test_the_papers_study_answers_every_set_a_second_time_as_published() -> None:
    study = plan(study="paper")
    published = study.published_episodes()
    assert len(published) == len(study.episodes()) > 0
    assert all(path.parent.name.endswith(".published") for path in published)
    hotpotqa = Path("results-paper/eval/parallelsearch/seed0/hotpotqa.dev.published/episodes.parquet")
    assert hotpotqa in study.table_inputs("hotpotqa_published")
    assert hotpotqa not in study.table_inputs("hotpotqa_by_structure")
    ours, theirs = (json.loads(study.evaluate_settings("parallelsearch", flag))["evaluation"] for flag in (False, True))
    assert (ours["temperature"], ours["drop_last"]) == (0, 0)
    assert (theirs["temperature"], theirs["drop_last"]) == (1, 256)
    assert plan().published_episodes() == []


def test_accuracy_against_budget_takes_one_further_evaluation_of_every_agent_that_searches_in_its_own_loop() -> None:
    study = plan()
    assert study.swept_arms == study.evaluated and "geoworld_by_budget" in study.tables
    unlimited = study.unlimited_episodes()
    assert [path.parent.name for path in unlimited] == ["geoworld.test.unlimited"] * 3
    assert set(unlimited) <= set(study.table_inputs("geoworld_by_budget")) & set(
        study.table_inputs("geoworld_by_structure")
    )
    ours, free = (json.loads(study.evaluate_settings("parallelsearch", unlimited=flag)) for flag in (False, True))
    limits = {"max_search_turns": 6, "max_response_tokens": 1024}
    assert free == ours | {"agent": ours["agent"] | limits} != ours
    paper = plan(study="paper")  # r1 never searches; the seven inference baselines have loops of their own
    others = {"direct", "chain-of-thought", "rag", "ircot", "iter-retgen", "search-o1", "dag-plan", "r1", "sft"}
    assert set(paper.study.arms) - set(paper.swept_arms) == others


def test_another_budget_answers_nothing_again_and_no_budget_leaves_no_trace() -> None:
    before, more = plan(), plan({"evaluation": {"budgets": {"llm_calls": [2, 7]}}})
    none = plan({"evaluation": {"budgets": None}})
    for arm in before.evaluated:
        assert before.evaluate_settings(arm) == more.evaluate_settings(arm) == none.evaluate_settings(arm)
        assert before.evaluate_settings(arm, unlimited=True) == more.evaluate_settings(arm, unlimited=True)
    assert before.report_settings() != more.report_settings()
    assert none.unlimited_episodes() == [] and "geoworld_by_budget" not in none.tables
    assert "accuracy_by_budget" not in none.figures and "gain" in none.figures


def test_an_arm_with_larger_limits_of_its_own_keeps_them() -> None:
    study = plan({"arm_overrides": {"parallelsearch": {"agent": {"max_response_tokens": 1500}}}})
    agent = json.loads(study.evaluate_settings("parallelsearch", unlimited=True))["agent"]
    assert (agent["max_search_turns"], agent["max_response_tokens"]) == (6, 1500)


def test_the_arm_whose_gain_is_told_is_parallelsearch_or_the_first_trained_one_beside_the_baseline() -> None:
    assert plan().treatment == "parallelsearch"
    assert plan({"arms": ["rag", "search-r1", "otc"]}).treatment == "otc"
    assert plan({"arms": ["rag", "search-r1"]}).treatment is None
    assert "gain" not in plan({"arms": ["rag", "search-r1"]}).figures


def test_an_arm_with_the_policy_of_another_is_evaluated_with_that_policy() -> None:
    study = plan(study="paper")
    name, source = "search-r1-parallel-prompt", "search-r1-original-prompt"
    assert (study.arm(name).policy_of, study.arm(name).agent.prompt) == (source, "parallel")
    assert study.policy(name, 3) == study.policy(source, 3) == f"results-paper/train/{source}/seed3"
    assert study.policy_marker(name, 3) == [Path(f"results-paper/train/{source}/seed3/done.json")]
    assert name not in study.trained_arms and len(study.trained_arms) == 16
    assert study.policy("search-o1", 0) == "Qwen/Qwen2.5-7B-Instruct" and study.policy_marker("dag-plan", 0) == []
    ours, theirs = (json.loads(study.evaluate_settings(arm))["agent"] for arm in (name, source))
    assert {key for key in ours if ours[key] != theirs[key]} == {"prompt"}


@pytest.mark.parametrize(
    ("overlays", "named"),
    [
        ({"x": "policy_of: seach-r1"}, ["policy_of of arm x", "'seach-r1'", "known arms", "search-r1"]),
        ({"x": "policy_of: rag"}, ["policy_of of arm x is 'rag'", "not trained"]),
        ({"x": "policy_of: x"}, ["policy_of of arm x is 'x'", "by the policy of 'x'"]),
        (
            {"x": "policy_of: y", "y": "policy_of: search-r1"},
            ["policy_of of arm x is 'y'", "by the policy of 'search-r1'", "name the arm that is trained"],
        ),
        ({"x": "policy_of: d0.35-s0.35"}, ["arm x", "'d0.35-s0.35'", "not among arms: search-r1, x; add it"]),
        (
            {"x": "policy_of: search-r1\ntraining: {steps: 3}"},
            ["policy_of is 'search-r1'", "set training.steps to 0 (it is 3)"],
        ),
        ({"x": "agent: {tags: research, prompt: parallel}"}, ["agent.prompt 'parallel'", "'search_r1'", "'research'"]),
        ({"x": "agent: {tags: research}\nreward: {semantics: released}"}, ["arm x", "reads Search-R1's tags"]),
        ({"x": "agent: {strategy: ircot, max_search_turns: 0}"}, ["agent.max_search_turns is 0", "'ircot' searches"]),
        ({"x": "agent: {max_search_turns: -1}"}, ["'agent.max_search_turns' is -1", "greater than or equal to 0"]),
        ({"x": "agent: {tags: re-search}"}, ["'agent.tags' is 're-search'", "'search_r1' or 'research'"]),
    ],
)  # fmt: skip
def test_a_wrong_arm_is_named_with_what_is_wrong_and_the_next_step(
    overlays: dict[str, str], named: list[str], tmp_path: Path
) -> None:
    shutil.copytree(CONFIG_DIR, tmp_path / "config")
    for name, text in overlays.items():
        steps = "" if "steps" in text else "\ntraining: {steps: 0}"
        (tmp_path / "config" / "arms" / f"{name}.yaml").write_text(f"description: by hand\n{text}{steps}\n")
    values = merge(read_yaml(CONFIG_DIR / "config.yaml"), {"arms": ["search-r1", "x"]})
    with pytest.raises(ConfigError) as refusal:
        StudyPlan.from_values(values, tmp_path / "config")
    for words in named:
        assert words in str(refusal.value)


def test_only_arms_of_the_agents_own_loop_ask_for_the_figure_over_top_k() -> None:
    assert "top_k" not in plan({"arms": ["search-r1", "search-o1"]}).figures  # it reads 10 passages, the others 1
    assert "top_k" in plan({"arms": ["search-r1", "top-k-5"]}).figures
