"""What is shown after a search: budgets in tokens, cuts at passage and word ends, always a closed block."""

from __future__ import annotations

import pytest

from parallelsearch.agent.observation import render_observation
from parallelsearch.agent.protocol import is_information, render_hit
from parallelsearch.records import Hit, Passage, SubQuery


def sub_query(text: str, *texts: str) -> SubQuery:
    return SubQuery(text, tuple(Hit(Passage(i, f"Title {i}", t), 1.0 - i / 10) for i, t in enumerate(texts)))


def tokens(text: str, tokenizer) -> int:
    return len(tokenizer.encode(text, add_special_tokens=False))


@pytest.fixture(params=["tokenizer", "byte_tokenizer"])
def each_tokenizer(request):
    return request.getfixturevalue(request.param)


def test_passages_are_shown_whole_until_the_budget_is_spent(each_tokenizer):
    query = sub_query("q", "the river is older", "the lake is older", "the mountain is older than the lake")
    lines = [render_hit(rank, hit) for rank, hit in enumerate(query.hits, 1)]
    costs = [tokens(line, each_tokenizer) for line in lines]
    for budget, shown in ((costs[0], 1), (sum(costs[:2]) - 1, 1), (sum(costs[:2]), 2), (sum(costs), 3), (9999, 3)):
        observation = render_observation([query], budget, each_tokenizer)
        assert observation.shown == (shown,)
        assert observation.text == f"\n\n<information>Results for q:\n{''.join(lines[:shown])}</information>\n\n"
        assert observation.token_ids == each_tokenizer.encode(observation.text, add_special_tokens=False)


def test_a_first_passage_that_does_not_fit_is_cut_after_a_whole_word(each_tokenizer):
    query = sub_query("q", "Oslo lies at the end of a long fjord and was founded in the year 1040 by a king", "short")
    line = render_hit(1, query.hits[0])
    whole = tokens(line, each_tokenizer)
    for budget in range(8, whole):
        observation = render_observation([query], budget, each_tokenizer)
        body = observation.text.removeprefix("\n\n<information>Results for q:\n").removesuffix("</information>\n\n")
        assert is_information(observation.text)
        words = body.split()
        assert words == line.split()[: len(words)] and len(words) < len(line.split())
        assert tokens(body, each_tokenizer) <= budget
        # One word more would not have fitted.
        longer = " ".join(line.split()[: len(words) + 1]) + "\n"
        assert tokens(longer, each_tokenizer) > budget
        assert observation.shown == (int(bool(words)),)


def test_each_sub_query_has_a_budget_of_its_own(tokenizer):
    long = "the river " * 50
    observation = render_observation(
        [sub_query("first", long), sub_query("none"), sub_query("last", "a lake")], 20, tokenizer
    )
    assert observation.shown == (1, 0, 1)
    assert "Results for none:\nResults for last:\nDoc 1(Title: Title 0) a lake\n</information>" in observation.text


def test_real_passages_stay_within_their_budget(tokenizer, real_passages):
    for start in range(0, 300, 30):
        query = SubQuery("q", tuple(Hit(passage, 1.0) for passage in real_passages[start : start + 3]))
        for budget in (8, 60, 250, 1000):
            observation = render_observation([query], budget, tokenizer)
            body = observation.text.removeprefix("\n\n<information>Results for q:\n").removesuffix("</information>\n\n")
            assert tokens(body, tokenizer) <= budget
            assert is_information(observation.text)
