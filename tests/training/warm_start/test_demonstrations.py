"""Demonstrations and the tokenizer they train: shares, masks, and text that survives its tokens."""

from __future__ import annotations

import random
from itertools import islice

import pytest
from transformers import AutoTokenizer

from parallelsearch.agent.protocol import is_well_formed, parse_generation
from parallelsearch.agent.transcript import parse_transcript
from parallelsearch.answers import exact_match
from parallelsearch.config import AgentConfig
from parallelsearch.geoworld.facts import World, load_world, split_countries
from parallelsearch.questions.structure import structure_of
from parallelsearch.records import Question, Structure
from parallelsearch.training.warm_start.demonstration_batches import IGNORED, token_rows
from parallelsearch.training.warm_start.demonstrations import Demonstration, demonstrations
from parallelsearch.training.warm_start.policy import TAG_TOKENS, train_tokenizer

COUNT = 1500
PARALLEL_SHARE = 0.3


@pytest.fixture(scope="module")
def train_world() -> World:
    world = load_world(1500)
    return world.restricted_to(split_countries(world, 0)["train"])


@pytest.fixture(scope="module")
def sample(train_world: World) -> list[Demonstration]:
    return list(islice(demonstrations(train_world, PARALLEL_SHARE, 2, random.Random(1)), COUNT))


@pytest.fixture(scope="module")
def tokenizer(sample: list[Demonstration]):
    return train_tokenizer((segment.text for d in sample for segment in d.segments), 800)


def episode_of(demonstration: Demonstration):
    draft = demonstration.draft
    structure = structure_of("geoworld", draft.type)
    question = Question("q", "geoworld", "train", draft.text, (draft.answer,), draft.type, structure)
    return parse_transcript(question, "".join(segment.text for segment in demonstration.segments))


def test_every_demonstration_is_a_right_and_well_formed_episode(sample: list[Demonstration]) -> None:
    for demonstration in sample:
        episode = episode_of(demonstration)
        assert is_well_formed(episode.turns)
        assert exact_match(episode.answer, episode.question.golden_answers) == 1.0


def test_about_three_in_ten_search_in_parallel_where_both_ways_are_possible(sample: list[Demonstration]) -> None:
    both = [episode_of(d) for d in sample if d.draft.type in ("comparison", "bridge_comparison")]
    share = sum(episode.decomposed for episode in both) / len(both)
    assert len(both) > 500
    assert abs(share - PARALLEL_SHARE) < 4 * (PARALLEL_SHARE * (1 - PARALLEL_SHARE) / len(both)) ** 0.5


def test_sequential_and_single_questions_are_never_decomposed(sample: list[Demonstration]) -> None:
    others = [episode_of(d) for d in sample if d.draft.type in ("bridge", "single")]
    assert others
    assert not any(episode.decomposed for episode in others)
    assert {e.searches for e in others if e.question.structure is Structure.SEQUENTIAL} == {2}
    assert {e.searches for e in others if e.question.structure is Structure.SINGLE} == {1}


def test_a_parallel_demonstration_takes_one_search_for_a_comparison(sample: list[Demonstration]) -> None:
    comparisons = [d for d in sample if d.draft.type == "comparison"]
    assert {episode_of(d).searches for d in comparisons if d.parallel} == {1}
    one_by_one = [(episode_of(d).searches, len(d.draft.levels[0])) for d in comparisons if not d.parallel]
    assert set(one_by_one) == {(2, 2), (3, 3), (4, 4)}


def test_one_by_one_a_demonstration_counts_its_searches(train_world: World) -> None:
    shown = demonstrations(train_world, 0.0, 1, random.Random(1), {"comparison": 1.0})
    demonstration = next(d for d in shown if len(d.draft.levels[0]) == 3)
    thoughts = [turn.text.partition("</think>")[0] for turn in episode_of(demonstration).turns]
    a, b, c = (look_up.fact for look_up in demonstration.draft.levels[0])
    assert thoughts == [
        "<think> I need the first of three facts.",
        f"<think> {a}. I need the second of three facts.",
        f"<think> {a} and {b}. I need the third of three facts.",
        f"<think> {a} and {b} and {c}: {demonstration.draft.conclusion}.",
    ]


def test_the_loss_covers_exactly_what_the_policy_generates(sample: list[Demonstration], tokenizer) -> None:
    agent = AgentConfig(prompt="short")
    for demonstration in sample[:200]:
        [(ids, labels)] = token_rows([demonstration], agent, tokenizer)
        trained = tokenizer.decode([label for label in labels if label != IGNORED])
        assert trained == "".join(segment.text for segment in demonstration.segments if segment.trains_on)
        assert all(label in (IGNORED, token) for token, label in zip(ids, labels, strict=True))
        assert "information" not in trained
        for segment in demonstration.segments:
            if segment.trains_on:
                assert parse_generation(segment.text).exact


def test_tokens_survive_saving_and_keep_text(sample: list[Demonstration], tokenizer, tmp_path) -> None:
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    names = ["Łódź", "São Paulo", "N'Djamena", "Ürümqi", "東京", "1234567"]
    for text in [*("".join(s.text for s in d.segments) for d in sample[:50]), *names]:
        assert loaded.encode(text) == tokenizer.encode(text)
        assert loaded.decode(loaded.encode(text)) == text
    assert len(loaded.encode("\n")) == 1
    assert len(loaded.encode("12345")) == 5  # digits stand alone
    assert all(len(loaded.encode(tag)) == 1 for tag in TAG_TOKENS)
    assert len(loaded) <= 800


def test_demonstrations_in_the_tags_of_research_are_the_same_with_boxed_answers(train_world: World) -> None:
    from parallelsearch.agent.tags import RESEARCH

    pairs = zip(
        demonstrations(train_world, PARALLEL_SHARE, 2, random.Random(1)),
        demonstrations(train_world, PARALLEL_SHARE, 2, random.Random(1), tags=RESEARCH),
        strict=True,
    )
    for plain, other in islice(pairs, 100):
        text = "".join(segment.text for segment in other.segments)
        question = Question("q", "geoworld", "train", other.draft.text, (), other.draft.type, Structure.OTHER)
        episode = parse_transcript(question, text, RESEARCH)
        assert episode.answer == other.draft.answer and episode.well_formed
        assert text.replace("result>", "information>").replace(f"\\boxed{{{episode.answer}}}", episode.answer) == (
            "".join(segment.text for segment in plain.segments)
        )
    tokenizer = train_tokenizer([segment.text for segment in other.segments], 400, RESEARCH.tokens)
    assert all(len(tokenizer.encode(tag)) == 1 for tag in RESEARCH.tokens)
    assert len(tokenizer.encode("<information>")) > 1
