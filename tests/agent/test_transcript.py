"""Stored transcripts: real ones against an independent count, hand-made ones against the rules."""

from __future__ import annotations

import gzip
import json

import pytest

from parallelsearch.agent.transcript import parse_transcript
from parallelsearch.answers import exact_match, f1_score
from parallelsearch.records import Action, Question, StopReason, Structure

INFO = "\n\n<information>Doc 1(Title: Lima) Lima is a city.\n</information>\n\n"
T = "<think>t</think>"
S = f"{T}<search>a</search>{INFO}"
A = f"{T}<answer>Lima</answer>"


def question(golden=("Lima",)) -> Question:
    return Question("q", "hotpotqa", "dev", "Which city?", tuple(golden), "comparison", Structure.PARALLEL)


def without_information(text: str) -> str:
    """`text` without its information blocks, by plain string search."""
    kept = ""
    while True:
        start = text.find("<information>")
        if start < 0:
            return kept + text
        kept, text = kept + text[:start], text[text.find("</information>", start) + len("</information>") :]


@pytest.mark.parametrize("policy", ["base", "instruct"])
def test_real_transcripts_agree_with_an_independent_count(shared_data, policy):
    searches = []
    with gzip.open(shared_data / "raw" / f"search_r1_traces_bamboogle_{policy}.jsonl.gz", "rt") as lines:
        for line in lines:
            row = json.loads(line)
            text = row["output"]["final_response"]
            episode = parse_transcript(question(row["golden_answers"]), text)
            model_text = without_information(text)
            searches.append(episode.searches)
            assert episode.searches == model_text.count("<search>") == text.count("</information>")
            assert episode.llm_calls == episode.searches + 1
            assert episode.answer == model_text.split("<answer>")[1].split("</answer>")[0].strip()
            assert episode.answer == row["output"]["pred"]
            assert exact_match(episode.answer, row["golden_answers"]) == row["output"]["metric_score"]["em"]
            assert f1_score(episode.answer, row["golden_answers"]) == pytest.approx(row["output"]["metric_score"]["f1"])
            assert "".join("".join(turn.text.split()) for turn in episode.turns) == "".join(model_text.split())
            assert episode.transcript == text
            assert episode.stop_reason is StopReason.ANSWERED
            # All of these begin with words outside a think block, or have no think block at all.
            assert not episode.well_formed and not episode.decomposed
    assert len(searches) == 125
    # Counted once with a shell one-liner over the raw files: one search each; 16 of one, 107 of two, 2 of three.
    expected = {"base": {1: 125}, "instruct": {1: 16, 2: 107, 3: 2}}[policy]
    assert {n: searches.count(n) for n in set(searches)} == expected


@pytest.mark.parametrize(
    ("transcript", "searches", "answer", "stop", "well_formed"),
    [
        (A, 0, "Lima", "answered", True),
        (S + A, 1, "Lima", "answered", True),
        (S + S + f"\n{A}\n", 2, "Lima", "answered", True),
        (S + "So: " + A, 1, "Lima", "answered", False),
        ("Hm. " + S + A, 1, "Lima", "answered", False),
        (f"{T}<search>a</search>{A}", 0, None, "invalid_action", False),  # a search and an answer in one generation
        (S + f"{T}<answer>Lima</answer> I am sure.", 1, "Lima", "answered", False),
        (S + f"<answer>Lima</answer>{T}", 1, "Lima", "answered", False),
        # a search that was not closed is none; what follows its information block is a turn of its own
        (f"{T}<search>a{INFO}{A}", 0, "Lima", "answered", False),
        (f"{T}<search>a<search>b</search>{INFO}{A}", 0, "Lima", "answered", False),
        (f"{T}<answer>Rome{INFO}{A}", 0, None, "invalid_action", False),
        # tags inside an information or a think block are not actions
        (S.replace("is a city", "<search>b</search> <answer>Rome</answer>") + A, 1, "Lima", "answered", True),
        (S.replace("is a city", "<search>b</search>") + T, 1, None, "invalid_action", False),
        (f"<think>or <search>b</search> {INFO} <answer>Rome</answer></think>{A}", 0, "Lima", "answered", False),
        ("<think>I say <answer>Lima</answer></think>", 0, None, "invalid_action", False),
        (f"{T}<information>I made this up</information>{A}", 0, "Lima", "answered", False),
        # several answers are none
        (f"{T}<answer>Lima</answer><answer>Rome</answer>", 0, None, "invalid_action", False),
        (f"{A}{S}{A}", 0, None, "invalid_action", False),
        (A + INFO + A, 0, None, "invalid_action", False),
        # unfinished
        ("", 0, None, "invalid_action", False),
        (S, 1, None, "turn_limit", False),
        (f"{T}<search>a</search>", 1, None, "turn_limit", False),
        (S + T, 1, None, "invalid_action", False),
        (S + f"{T}<answer>Lima", 1, None, "invalid_action", False),
        # a block that never ends: all of it is passages
        (S.replace("</information>", "") + A, 1, None, "turn_limit", False),
        (S + A.upper(), 1, None, "invalid_action", False),
        # corrections are observations, and the tags of the published one are no actions
        (f"hm\nMy action is not correct. Let me rethink.\n{S}{A}", 1, "Lima", "answered", False),
        (
            "hm\nMy previous action is invalid. If I want to search, I should put the query between <search> and"
            " </search>. If I want to give the final answer, I should put the answer between <answer> and </answer>."
            f" Let me try again.\n{S}{A}",
            1, "Lima", "answered", False,
        ),
    ],
)  # fmt: skip
def test_hand_made_transcripts(transcript, searches, answer, stop, well_formed):
    episode = parse_transcript(question(), transcript)
    assert episode.transcript == transcript
    assert (episode.searches, episode.answer, episode.stop_reason, episode.well_formed) == (
        searches, answer, StopReason(stop), well_formed,
    )  # fmt: skip


def test_turns_of_a_transcript():
    episode = parse_transcript(question(), f"{T}<search>a ## b ## a</search>{INFO}oops\n\n{A}")
    assert [turn.action for turn in episode.turns] == [Action.SEARCH, Action.ANSWER]
    assert [q.text for q in episode.turns[0].sub_queries] == ["a", "b", "a"]
    assert episode.decomposed
    assert episode.turns[0].observation == INFO


def test_only_different_sub_queries_are_a_decomposition():
    for text, decomposed in (("a ##", False), ("a ## A", False), ("a ## a", False), ("a ## b", True)):
        assert parse_transcript(question(), f"{T}<search>{text}</search>{INFO}{A}").decomposed is decomposed
