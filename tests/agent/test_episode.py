"""The episode loop: what the model sees, which tokens are its own, and every way an episode can end."""

from __future__ import annotations

import asyncio

import pytest
from scripted import FailingRetriever, ScriptedEngine, WordRetriever

from parallelsearch.agent.episode import Rollout, run_episode
from parallelsearch.agent.protocol import CORRECTION
from parallelsearch.agent.transcript import parse_transcript
from parallelsearch.config import AgentConfig
from parallelsearch.engines.engine import Generation, Sampling
from parallelsearch.engines.hf import HFEngine
from parallelsearch.errors import RetrieverError
from parallelsearch.records import Action, Question, StopReason, Structure

QUESTION = Question(
    "q1", "hotpotqa", "dev", "Which is older, Oslo or Bergen?", ("Oslo",), "comparison", Structure.PARALLEL
)
ROOMY = AgentConfig(
    prompt="short",
    top_k=2,
    max_search_turns=4,
    max_sub_queries=4,
    max_generation_tokens=200,
    max_sub_query_result_tokens=400,
    max_response_tokens=4000,
    max_prompt_tokens=400,
    on_invalid="stop",
)
SEARCH_BOTH = "<think>two cities</think><search>founded Oslo ## founded Bergen</search>"
SEARCH_LIMA = "<think>a city</think><search>capital of Peru</search>"
ANSWER = "<think>1040 is first</think><answer>Oslo</answer>"


def run(engine, retriever, agent=ROOMY, sampling=Sampling(), question=QUESTION) -> Rollout:  # noqa: B008
    return asyncio.run(run_episode(question, engine, retriever, agent, sampling))


def settings(**changes) -> AgentConfig:
    return ROOMY.model_copy(update=changes)


def own_tokens(rollout: Rollout) -> list[int]:
    return [token for token, own in zip(rollout.response_ids, rollout.trains_on, strict=True) if own]


@pytest.fixture(params=["tokenizer", "byte_tokenizer"])
def each_tokenizer(request):
    return request.getfixturevalue(request.param)


def test_a_parallel_episode(each_tokenizer, retriever):
    engine = ScriptedEngine(each_tokenizer, [SEARCH_BOTH, ANSWER])
    rollout = run(engine, retriever)
    episode = rollout.episode
    assert (episode.answer, episode.stop_reason, episode.well_formed) == ("Oslo", StopReason.ANSWERED, True)
    assert (episode.llm_calls, episode.searches, episode.decomposed, episode.error) == (2, 1, True, "")
    assert retriever.calls == [["founded Oslo", "founded Bergen"]]  # one batched call for the turn
    observation = episode.turns[0].observation
    assert observation.startswith("\n\n<information>Results for founded Oslo:\nDoc 1(Title: Oslo) Oslo is the capital")
    assert "\nResults for founded Bergen:\nDoc 1(Title: Bergen) Bergen is a city" in observation
    assert observation.endswith("</information>\n\n")
    assert [q.shown for q in episode.turns[0].sub_queries] == [2, 2]
    assert episode.turns[0].sub_queries[1].hits[0].passage.title == "Bergen"
    assert episode.seconds >= sum(turn.generate_seconds + turn.search_seconds for turn in episode.turns) > 0
    assert episode.turns[1].search_seconds == 0.0


def test_token_ids_and_mask(each_tokenizer, retriever):
    texts = [SEARCH_LIMA, SEARCH_BOTH, ANSWER]
    engine = ScriptedEngine(each_tokenizer, texts)
    rollout = run(engine, retriever)
    episode = rollout.episode
    lengths = {len(part) for part in (rollout.response_ids, rollout.trains_on, rollout.log_probs)}
    assert len(lengths) == 1
    # The model's own tokens are what it said; everything together is the transcript.
    assert each_tokenizer.decode(own_tokens(rollout)) == "".join(texts) == "".join(t.text for t in episode.turns)
    assert each_tokenizer.decode(rollout.response_ids) == episode.transcript
    assert each_tokenizer.decode(rollout.prompt_ids) == episode.prompt
    # Each generation continued exactly the tokens before it.
    whole = rollout.prompt_ids + rollout.response_ids
    assert engine.inputs[0] == rollout.prompt_ids
    for before, after in zip(engine.inputs, [*engine.inputs[1:], whole], strict=True):
        assert after[: len(before)] == before
    starts = [len(ids) - len(rollout.prompt_ids) for ids in engine.inputs]
    for start, turn in zip(starts, episode.turns, strict=True):
        end = start + turn.model_tokens
        assert rollout.trains_on[start:end] == [1] * turn.model_tokens
        assert rollout.trains_on[end : end + turn.observation_tokens] == [0] * turn.observation_tokens
    assert sum(rollout.trains_on) == sum(turn.model_tokens for turn in episode.turns)
    assert len(rollout.trains_on) == sum(turn.model_tokens + turn.observation_tokens for turn in episode.turns)
    # The log-probability is the engine's on own tokens and 0 on the others.
    assert [value != 0.0 for value in rollout.log_probs] == [own == 1 for own in rollout.trains_on]
    assert episode.prompt_tokens == len(rollout.prompt_ids)


def test_an_episode_and_its_transcript_agree(each_tokenizer, retriever):
    for texts in ([SEARCH_BOTH, ANSWER], [ANSWER], [SEARCH_LIMA, "no tags"], [SEARCH_LIMA, "Hm. " + ANSWER]):
        episode = run(ScriptedEngine(each_tokenizer, texts), retriever).episode
        read = parse_transcript(QUESTION, episode.transcript)
        assert (read.answer, read.stop_reason, read.well_formed, read.searches) == (
            episode.answer, episode.stop_reason, episode.well_formed, episode.searches,
        )  # fmt: skip
        assert [turn.text for turn in read.turns] == [turn.text for turn in episode.turns]
        assert [turn.observation for turn in read.turns] == [turn.observation for turn in episode.turns]


def test_the_end_token_is_trained_on_but_not_text(tokenizer, retriever):
    rollout = run(ScriptedEngine(tokenizer, ["I do not know"], end_token=True), retriever)
    assert rollout.response_ids[-1] == tokenizer.eos_token_id and rollout.trains_on[-1] == 1
    assert rollout.episode.turns[0].text == "I do not know"
    assert rollout.episode.stop_reason is StopReason.INVALID_ACTION and rollout.episode.answer is None


def test_special_tokens_in_the_middle_are_visible(tokenizer, retriever):
    text = "<think>x</think><|im_start|><answer>Oslo</answer>"
    episode = run(ScriptedEngine(tokenizer, [text]), retriever).episode
    assert episode.turns[0].text == text and not episode.well_formed


def test_repeated_sub_queries_are_searched_once_and_shown_where_they_stand(tokenizer, retriever):
    engine = ScriptedEngine(tokenizer, ["<think>t</think><search>Oslo ## Lima ## ## Oslo</search>", ANSWER])
    episode = run(engine, retriever).episode
    assert retriever.calls == [["Oslo", "Lima"]]
    turn = episode.turns[0]
    assert [q.text for q in turn.sub_queries] == ["Oslo", "Lima", "Oslo"]
    assert turn.sub_queries[0] == turn.sub_queries[2]
    assert turn.observation.count("Results for Oslo:") == 2


def test_further_sub_queries_are_dropped(tokenizer, retriever):
    engine = ScriptedEngine(tokenizer, ["<think>t</think><search>Oslo ## Lima ## Bergen</search>", ANSWER])
    episode = run(engine, retriever, settings(max_sub_queries=2)).episode
    assert retriever.calls == [["Oslo", "Lima"]]
    assert [q.text for q in episode.turns[0].sub_queries] == ["Oslo", "Lima"]


@pytest.mark.parametrize(
    "text",
    ["", "Oslo", "<think>t</think><search>##</search>", "<think>t</think><search>a", "<think><answer>Oslo</answer>"],
)
def test_an_invalid_action_ends_the_episode(tokenizer, retriever, text):
    rollout = run(ScriptedEngine(tokenizer, [text]), retriever)
    assert rollout.episode.stop_reason is StopReason.INVALID_ACTION
    assert rollout.episode.turns[0].action is Action.INVALID and not rollout.episode.well_formed
    assert not retriever.calls and 0 not in rollout.trains_on


def test_or_is_corrected(tokenizer, retriever):
    engine = ScriptedEngine(tokenizer, ["Oslo", SEARCH_BOTH, ANSWER])
    rollout = run(engine, retriever, settings(on_invalid="retry"))
    episode = rollout.episode
    assert episode.answer == "Oslo" and not episode.well_formed
    assert episode.turns[0].observation == CORRECTION and "<" not in CORRECTION
    assert tokenizer.decode(own_tokens(rollout)) == "Oslo" + SEARCH_BOTH + ANSWER
    read = parse_transcript(QUESTION, episode.transcript)
    assert [t.text for t in read.turns] == [t.text for t in episode.turns]
    assert (read.answer, read.searches, read.well_formed) == ("Oslo", 1, False)


def test_corrections_count_as_turns(tokenizer, retriever):
    engine = ScriptedEngine(tokenizer, ["Oslo"] * 9)
    episode = run(engine, retriever, settings(on_invalid="retry", max_search_turns=3)).episode
    assert (episode.llm_calls, episode.stop_reason) == (4, StopReason.TURN_LIMIT)
    assert episode.turns[-1].observation == ""


def test_after_the_last_search_turn_one_more_generation_may_answer(tokenizer, retriever):
    engine = ScriptedEngine(tokenizer, [SEARCH_LIMA, SEARCH_LIMA, ANSWER])
    episode = run(engine, retriever, settings(max_search_turns=2)).episode
    assert (episode.llm_calls, episode.answer, episode.well_formed) == (3, "Oslo", True)


def test_but_not_search(tokenizer, retriever):
    engine = ScriptedEngine(tokenizer, [SEARCH_LIMA, SEARCH_LIMA, SEARCH_BOTH, ANSWER])
    episode = run(engine, retriever, settings(max_search_turns=2)).episode
    assert (episode.llm_calls, episode.searches, len(retriever.calls)) == (3, 3, 2)
    assert (episode.stop_reason, episode.answer, episode.well_formed) == (StopReason.TURN_LIMIT, None, False)
    assert episode.turns[-1].observation == "" and episode.turns[-1].sub_queries[0].hits == ()


def test_a_response_never_exceeds_its_limit(tokenizer, retriever):
    """Every limit from very small to roomy: the limit holds, and the ids always are whole turns and observations."""
    stops = set()
    for limit in range(16, 1400, 45):
        engine = ScriptedEngine(tokenizer, [SEARCH_BOTH, SEARCH_LIMA, ANSWER])
        rollout = run(engine, retriever, settings(max_response_tokens=limit))
        episode = rollout.episode
        assert len(rollout.response_ids) <= limit
        assert all(budget <= limit for budget in engine.budgets)
        assert tokenizer.decode(rollout.response_ids) == episode.transcript
        assert all(turn.observation in ("",) or "</information>" in turn.observation for turn in episode.turns)
        assert episode.stop_reason in (StopReason.TOKEN_LIMIT, StopReason.ANSWERED)
        assert (episode.answer is None) == (episode.stop_reason is StopReason.TOKEN_LIMIT)
        stops.add((episode.stop_reason, episode.llm_calls))
    assert len(stops) >= 4


def test_a_question_that_is_too_long_is_not_cut(tokenizer, retriever):
    engine = ScriptedEngine(tokenizer, [ANSWER])
    rollout = run(engine, retriever, settings(max_prompt_tokens=8))
    assert rollout.episode.stop_reason is StopReason.TOKEN_LIMIT
    assert "q1" in rollout.episode.error and "max_prompt_tokens = 8" in rollout.episode.error
    assert not engine.inputs and rollout.response_ids == []


@pytest.mark.parametrize(
    "error", [RetrieverError("execution timed out at http://node7:8000"), TimeoutError("slow"), KeyError("hits")]
)
def test_a_retriever_failure_is_recorded_and_never_shown(tokenizer, retriever, error):
    engine = ScriptedEngine(tokenizer, [SEARCH_LIMA, SEARCH_BOTH, ANSWER])
    rollout = run(engine, FailingRetriever(retriever, 1, error))
    episode = rollout.episode
    assert episode.stop_reason is StopReason.RETRIEVER_ERROR and episode.stop_reason.is_infrastructure_failure
    assert type(error).__name__ in episode.error and episode.llm_calls == 2
    assert "timed out" not in episode.transcript and "slow" not in tokenizer.decode(rollout.response_ids)
    assert episode.answer is None and not episode.well_formed
    assert len(rollout.trains_on) == len(rollout.response_ids) == len(rollout.log_probs)


def test_a_reply_of_the_wrong_length_is_a_retriever_failure(tokenizer):
    class Short:
        async def search(self, queries, top_k):
            return []

    episode = run(ScriptedEngine(tokenizer, [SEARCH_BOTH]), Short()).episode
    assert episode.stop_reason is StopReason.RETRIEVER_ERROR and "0 result lists for 2" in episode.error


def test_an_engine_failure_is_recorded(tokenizer, retriever):
    rollout = run(ScriptedEngine(tokenizer, [SEARCH_LIMA], fails_at=1), retriever)
    assert rollout.episode.stop_reason is StopReason.ENGINE_ERROR
    assert "out of order" in rollout.episode.error and rollout.episode.llm_calls == 1
    assert "out of order" not in rollout.episode.transcript


def test_an_engine_that_breaks_its_promise_is_an_engine_failure(tokenizer, retriever):
    class Endless(ScriptedEngine):
        async def generate(self, token_ids, *, max_tokens, stop, sampling):
            return Generation([5] * (max_tokens + 1), [0.0] * (max_tokens + 1), "length")

    class Forgetful(ScriptedEngine):
        async def generate(self, token_ids, *, max_tokens, stop, sampling):
            return Generation([5, 6], [0.0], "length")

    for broken in (Endless, Forgetful):
        rollout = run(broken(tokenizer, []), retriever)
        assert rollout.episode.stop_reason is StopReason.ENGINE_ERROR and rollout.response_ids == []


def test_generations_of_one_episode_have_seeds_of_their_own(tokenizer, retriever):
    seeds = []
    for seed in (0, 1, 2):
        engine = ScriptedEngine(tokenizer, [SEARCH_LIMA, SEARCH_BOTH, ANSWER])
        run(engine, retriever, sampling=Sampling(1.0, 0.9, seed))
        assert {(s.temperature, s.top_p) for s in engine.samplings} == {(1.0, 0.9)}
        seeds += [s.seed for s in engine.samplings]
    assert len(set(seeds)) == 9
    engine = ScriptedEngine(tokenizer, [ANSWER])
    run(engine, retriever)
    assert engine.samplings[0].seed is None


def test_a_real_model_and_many_episodes_at_once(model, tokenizer, real_passages):
    """Random weights say nothing sensible; the loop, the mask and the log-probabilities hold all the same."""
    import torch

    agent = settings(max_generation_tokens=24, max_response_tokens=300, on_invalid="retry", max_search_turns=3)
    engine = HFEngine(model, tokenizer, max_rows=8)
    retriever = WordRetriever(real_passages)

    async def all_episodes():
        return await asyncio.gather(
            *(run_episode(QUESTION, engine, retriever, agent, Sampling(1.0, seed=seed)) for seed in range(20))
        )

    rollouts = asyncio.run(all_episodes())
    alone = asyncio.run(run_episode(QUESTION, engine, retriever, agent, Sampling(1.0, seed=7)))
    engine.close()
    assert alone.response_ids == rollouts[7].response_ids
    assert len({tuple(rollout.response_ids) for rollout in rollouts}) == 20
    for rollout in rollouts:
        assert not rollout.episode.stop_reason.is_infrastructure_failure, rollout.episode.error
        whole = torch.tensor([rollout.prompt_ids + rollout.response_ids])
        with torch.no_grad():
            log_probs = torch.log_softmax(model(whole).logits[0, :-1].float(), dim=-1)
        expected = log_probs.gather(1, whole[0, 1:, None])[len(rollout.prompt_ids) - 1 :, 0]
        mask = torch.tensor(rollout.trains_on, dtype=torch.bool)
        assert torch.allclose(torch.tensor(rollout.log_probs)[mask], expected[mask], atol=1e-4)


@pytest.mark.parametrize("on_invalid", ["stop", "retry"])
def test_without_search_turns_a_search_is_an_invalid_action(tokenizer, retriever, on_invalid):
    without = settings(max_search_turns=0, prompt="r1", on_invalid=on_invalid)
    engine = ScriptedEngine(tokenizer, [SEARCH_BOTH, ANSWER])
    episode = run(engine, retriever, without).episode
    assert (episode.llm_calls, episode.searches, retriever.calls) == (1, 0, [])
    assert (episode.stop_reason, episode.answer, episode.well_formed) == (StopReason.INVALID_ACTION, None, False)
    assert (episode.turns[0].action, episode.turns[0].sub_queries, episode.decomposed) == (Action.INVALID, (), False)
    episode = run(ScriptedEngine(tokenizer, [ANSWER]), retriever, without).episode
    assert (episode.answer, episode.llm_calls, episode.well_formed) == ("Oslo", 1, True)
    assert "search" not in episode.prompt and "<think>" in episode.prompt
