"""Plans: what breaks their rules, when each sub-question starts, and what the episode counts."""

from __future__ import annotations

import asyncio
import gc
from collections import defaultdict

import pytest
from scripted import FAILS, AnsweringEngine, FailingRetriever, GatedRetriever

from parallelsearch.config import AgentConfig
from parallelsearch.engines.engine import Sampling
from parallelsearch.records import Action, Episode, Question, StopReason, Structure
from parallelsearch.strategies.plan import PlanFault, parse_plan
from parallelsearch.strategies.strategy import answer

QUESTION = Question("q1", "hotpotqa", "dev", "Which is older?", ("Oslo",), "comparison", Structure.PARALLEL)
AGENT = AgentConfig(
    strategy="dag_plan", top_k=1, max_search_turns=3, max_sub_queries=4, max_plan_questions=4,
    max_generation_tokens=400, max_sub_query_result_tokens=400, max_prompt_tokens=4000,
)  # fmt: skip
PARALLEL = "1: founding of Oslo\n2: founding of Bergen"
BRIDGE = "1: capital of Norway\n2: founding of #1"
TWO_CHAINS = "1: capital of Norway\n2: capital of Peru\n3: founding of #1\n4: founding of #2"
REPLIES = {
    "Which is older?": "Oslo",
    "founding of Oslo": "1040",
    "founding of Bergen": "1070",
    "founding of Lima": "1535",
    "capital of Norway": "Oslo",
    "capital of Peru": "Lima",
}


class Planner(AnsweringEngine):
    """Says `plan` first."""

    def __init__(self, tokenizer, plan: str, gates=None, **replies: str) -> None:
        changed = {name.replace("_", " "): reply for name, reply in replies.items()}
        super().__init__(tokenizer, REPLIES | changed, gates)
        self._plan, self._final = plan, REPLIES["Which is older?"]

    async def generate(self, token_ids, **settings):
        self._replies = {**self._replies, "Which is older?": self._final if self.prompts else self._plan}
        return await super().generate(token_ids, **settings)


def run(engine, retriever, seed: int | None = None, on_turn=lambda turn: None, **changes) -> Episode:
    async def alone() -> Episode:
        async with asyncio.timeout(20):
            sampling = Sampling(0.0 if seed is None else 1.0, seed=seed)
            agent = AGENT.model_copy(update=changes)
            episode = await answer(QUESTION, engine, retriever, agent, sampling, on_turn)
        assert len(asyncio.all_tasks()) == 1  # nothing runs on
        return episode

    return asyncio.run(alone())


def actions(episode: Episode) -> list[str]:
    return [f"{turn.action}:{len(turn.sub_queries)}" for turn in episode.turns]


@pytest.mark.parametrize(
    ("plan", "queries", "calls", "decomposed", "turns"),
    [
        ("1: founding of Oslo", [["founding of Oslo"]], 3, False, ["step:0", "search:1", "step:0", "answer:0"]),
        (
            PARALLEL,
            [["founding of Oslo", "founding of Bergen"]],
            4, True, ["step:0", "search:2", "step:0", "step:0", "answer:0"],
        ),
        (
            BRIDGE,
            [["capital of Norway"], ["founding of Oslo"]],
            4, False, ["step:0", "search:1", "step:0", "search:1", "step:0", "answer:0"],
        ),
        (
            TWO_CHAINS,
            [["capital of Norway", "capital of Peru"], ["founding of Oslo", "founding of Lima"]],
            6, True, ["step:0", "search:2", "step:0", "step:0", "search:2", "step:0", "step:0", "answer:0"],
        ),
        (
            "0: founding of Oslo\n7: founding of Bergen",
            [["founding of Oslo", "founding of Bergen"]],
            4, True, ["step:0", "search:2", "step:0", "step:0", "answer:0"],
        ),
        (  # a sub-question that waits for a later one
            "2: capital of Norway\n1: founding of #2",
            [["capital of Norway"], ["founding of Oslo"]],
            4, False, ["step:0", "search:1", "step:0", "search:1", "step:0", "answer:0"],
        ),
    ],
)  # fmt: skip
def test_calls_and_searches_are_those_counted_by_hand(
    plan, queries, calls, decomposed, turns, byte_tokenizer, retriever
):
    engine = Planner(byte_tokenizer, f"The plan:\n{plan}\nThat is all.")
    seen = []
    episode = run(engine, retriever, on_turn=seen.append)
    assert (episode.answer, episode.stop_reason, episode.well_formed) == ("Oslo", StopReason.ANSWERED, True)
    assert retriever.calls == queries
    assert (episode.llm_calls, episode.searches, episode.decomposed) == (calls, len(queries), decomposed)
    assert actions(episode) == turns and len(engine.prompts) == calls
    assert len(seen) == len(episode.turns)
    assert episode.prompt == engine.prompts[0] and "at most 4 lines" in episode.prompt
    assert sum(turn.model_tokens for turn in episode.turns) == sum(
        len(byte_tokenizer.encode(turn.text)) for turn in episode.turns
    )


def test_a_sub_question_is_answered_from_its_own_passages_and_the_question_from_the_answers(byte_tokenizer, retriever):
    engine = Planner(byte_tokenizer, PARALLEL)
    episode = run(engine, retriever)
    _, oslo, bergen, last = engine.prompts
    assert "(Title: Oslo)" in oslo and "(Title: Bergen)" not in oslo and "Question: founding of Oslo\n" in oslo
    assert "(Title: Bergen)" in bergen and "(Title: Oslo)" not in bergen
    assert "founding of Oslo 1040\nfounding of Bergen 1070\n" in last and "(Title:" not in last
    assert [q.shown for q in episode.turns[1].sub_queries] == [1, 1]
    assert engine.most_at_once == 2  # both sub-questions were answered at once


def test_a_sub_question_starts_the_moment_its_own_parents_are_answered(byte_tokenizer, retriever):
    """The answer to 2 comes only after 3, which waits for 1 alone, was looked up: level by level, this would stand."""
    gated = GatedRetriever(retriever)
    engine = Planner(
        byte_tokenizer,
        "1: capital of Norway\n2: capital of Peru\n3: founding of #1",
        {"capital of Peru": gated.asked["founding of Oslo"]},
    )
    episode = run(engine, gated)
    assert gated.calls == [["capital of Norway", "capital of Peru"], ["founding of Oslo"]]
    assert (episode.answer, episode.llm_calls, episode.searches) == ("Oslo", 5, 2)


def test_searches_of_different_moments_run_at_the_same_time(byte_tokenizer, retriever):
    """The search for 3 ends only when that for 4 has begun, and 2 is answered only after the search for 3 has begun."""
    gated = GatedRetriever(retriever)
    gated.gates["founding of Oslo"] = gated.asked["founding of Lima"]
    engine = Planner(byte_tokenizer, TWO_CHAINS, {"capital of Peru": gated.asked["founding of Oslo"]})
    episode = run(engine, gated)
    assert gated.most_at_once == 2
    assert gated.calls == [["capital of Norway", "capital of Peru"], ["founding of Oslo"], ["founding of Lima"]]
    assert (episode.llm_calls, episode.searches, episode.decomposed) == (6, 3, True)


def test_more_than_max_sub_queries_take_searches_of_their_own_at_the_same_time(byte_tokenizer, retriever):
    gated = GatedRetriever(retriever)
    gated.gates["founding of Oslo"] = gated.asked["founding of Lima"]
    engine = Planner(byte_tokenizer, PARALLEL + "\n3: founding of Lima")
    episode = run(engine, gated, max_sub_queries=2)
    assert gated.calls == [["founding of Oslo", "founding of Bergen"], ["founding of Lima"]]
    assert gated.most_at_once == 2 and (episode.searches, episode.decomposed) == (2, True)
    assert actions(episode) == ["step:0", "search:2", "step:0", "step:0", "search:1", "step:0", "answer:0"]


def test_order_and_seeds_of_the_turns_do_not_depend_on_which_call_was_faster(byte_tokenizer, retriever):
    episodes, seeds = [], []
    for held, until in (("founding of Oslo", "founding of Bergen"), ("founding of Bergen", "founding of Oslo")):
        ended: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

        class Ordered(Planner):
            async def generate(self, token_ids, *, ended=ended, **settings):
                made = await super().generate(token_ids, **settings)
                ended[
                    {"1040": "founding of Oslo", "1070": "founding of Bergen"}.get(
                        self.tokenizer.decode(made.token_ids)
                    )
                ].set()
                return made

        engine = Ordered(byte_tokenizer, PARALLEL, {held: ended[until]})
        episodes.append(run(engine, retriever, seed=5))
        seeds.append(engine.seeds)
    first, second = ([(turn.text, turn.action) for turn in episode.turns] for episode in episodes)
    assert first == second and [text for text, _ in first] == [PARALLEL, "", "1040", "1070", "Oslo"]
    assert seeds[0] == seeds[1] and len(set(seeds[0].values())) == 3  # the plan's own seed was overwritten by the last


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        ("I do not know.", "The plan has no line of the form 'NUMBER: sub-question'."),
        ("1.5 million people\n1990\n", "The plan has no line of the form 'NUMBER: sub-question'."),
        ("1:\n2: ", "The plan has no line of the form 'NUMBER: sub-question'."),
        ("1: a\n1: b", "The plan has two sub-questions with the number 1."),
        ("1: a #1", "Sub-question 1 of the plan waits for its own answer."),
        ("1: a\n2: b #3 and #7", "Sub-question 2 of the plan waits for #3, which is not in the plan."),
        ("1: a #2\n2: b #3\n3: c #1", "The plan's sub-questions wait for one another in a circle: "),
        ("1: a\n2: b #3\n3: c #2", "The plan's sub-questions wait for one another in a circle: "),
        ("1: a\n2: b\n3: c\n4: d\n5: e", "The plan has 5 sub-questions, more than agent.max_plan_questions = 4."),
        ("1: a\n2: b #1\n3: c #2\n4: d #3", "The plan is 4 searches deep, more than agent.max_search_turns = 3."),
    ],
)  # fmt: skip
def test_a_plan_that_breaks_a_rule_is_not_carried_out(plan, sentence, byte_tokenizer, retriever):
    with pytest.raises(PlanFault) as fault:
        parse_plan(plan, 4, 3)
    assert str(fault.value).startswith(sentence) and str(fault.value).endswith(".")
    episode = run(Planner(byte_tokenizer, plan), retriever)
    assert (episode.stop_reason, episode.answer) == (StopReason.INVALID_ACTION, None)
    assert episode.error == str(fault.value)
    assert (episode.llm_calls, episode.searches, retriever.calls) == (1, 0, [])


def test_a_plan_of_the_largest_size_and_depth_is_one():
    plan = parse_plan("Plan.\n 1) a\n2. b #1\n3 : c #2 #1 #2\n10: d#1?\n", 4, 3)
    assert plan.questions == {1: "a", 2: "b #1", 3: "c #2 #1 #2", 10: "d#1?"}
    assert plan.parents == {1: frozenset(), 2: {1}, 3: {1, 2}, 10: {1}}
    assert plan.levels == 3
    assert plan.filled(3, {1: "#2", 2: "x"}) == "c x #2 x"  # an answer that looks like a placeholder is none


def test_a_sub_question_without_an_answer_ends_the_episode(byte_tokenizer, retriever):
    engine = Planner(byte_tokenizer, BRIDGE, capital_of_Norway=" \n")
    episode = run(engine, retriever)
    assert (episode.stop_reason, episode.error) == (
        StopReason.INVALID_ACTION, "Sub-question 1 of the plan got no answer.",
    )  # fmt: skip
    assert (episode.llm_calls, episode.searches, actions(episode)) == (2, 1, ["step:0", "search:1", "step:0"])


def test_an_empty_last_reply_is_no_answer(byte_tokenizer, retriever):
    engine = Planner(byte_tokenizer, PARALLEL)
    engine._final = "\n"
    episode = run(engine, retriever)
    assert (episode.answer, episode.stop_reason, episode.llm_calls) == (None, StopReason.INVALID_ACTION, 4)


def test_a_failure_ends_everything_that_still_runs(byte_tokenizer, retriever):
    never = asyncio.Event()
    engine = Planner(byte_tokenizer, PARALLEL, {"founding of Bergen": never}, founding_of_Oslo=FAILS)
    episode = run(engine, retriever)
    assert episode.stop_reason is StopReason.ENGINE_ERROR and "out of order" in episode.error
    assert (episode.llm_calls, episode.searches, actions(episode)) == (1, 1, ["step:0", "search:2"])

    episode = run(Planner(byte_tokenizer, BRIDGE), FailingRetriever(retriever, 1))
    assert episode.stop_reason is StopReason.RETRIEVER_ERROR and "timed out" in episode.error
    assert (episode.llm_calls, episode.searches, actions(episode)) == (2, 1, ["step:0", "search:1", "step:0"])


def test_a_failed_search_of_several_sub_questions_is_reported_once_and_logs_nothing(byte_tokenizer, retriever, caplog):
    episode = run(Planner(byte_tokenizer, PARALLEL), FailingRetriever(retriever, 0))
    gc.collect()  # a task whose failure nobody has asked for complains when it is collected
    assert (episode.stop_reason, episode.llm_calls, episode.searches) == (StopReason.RETRIEVER_ERROR, 1, 0)
    assert caplog.records == []


def test_a_prompt_beyond_the_limit_is_named_by_its_place_in_the_plan(byte_tokenizer, retriever):
    tokens = len(byte_tokenizer.encode(run(Planner(byte_tokenizer, "none"), retriever).prompt))
    engine = Planner(byte_tokenizer, f"1: {'founding of Oslo ' * 300}")
    episode = run(engine, retriever, max_prompt_tokens=tokens, max_generation_tokens=9999)
    assert episode.stop_reason is StopReason.TOKEN_LIMIT
    assert "prompt 2 of question q1 has" in episode.error and f"agent.max_prompt_tokens = {tokens}." in episode.error
    assert episode.searches == 1 and episode.turns[0].action is Action.STEP
