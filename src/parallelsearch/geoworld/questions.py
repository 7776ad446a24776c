"""Questions of a split: drawn from the templates in fixed shares, checked, without repetition."""

from __future__ import annotations

import random

from parallelsearch.answers import normalise
from parallelsearch.errors import ConfigError
from parallelsearch.geoworld.facts import World
from parallelsearch.geoworld.templates import TEMPLATES, Draft
from parallelsearch.questions.structure import structure_of
from parallelsearch.records import Question

TYPE_SHARES = {"comparison": 0.4, "bridge": 0.3, "bridge_comparison": 0.1, "single": 0.2}


def draw(world: World, rng: random.Random, type: str) -> Draft | None:
    """One draft of a type, or None when a hundred tries found no fitting entities."""
    for _ in range(100):
        draft = rng.choice(TEMPLATES[type])(world, rng)
        if draft is not None and normalise(draft.answer):
            return draft
    return None


def make_questions(world: World, split: str, count: int, seed: int, ids: dict[str, int]) -> list[Question]:
    """`count` different questions over `world`, types dealt out in TYPE_SHARES; `ids` gives the passage id of a title.

    Raises ConfigError when the world is too small for so many different questions.
    """
    rng = random.Random(f"{seed}/questions/{split}")
    questions: list[Question] = []
    seen: set[str] = set()
    owed = dict.fromkeys(TYPE_SHARES, 0.0)
    misses = 0
    while len(questions) < count:
        for type, share in TYPE_SHARES.items():
            owed[type] += share
        type = max(owed, key=lambda name: owed[name])
        draft = draw(world, rng, type)
        owed[type] -= 1
        if draft is None or draft.text in seen:
            misses += 1
            if misses > 50 * count:
                raise ConfigError(
                    f"geoworld: only {len(questions)} of {count} different {split} questions can be made from"
                    f" {len(world.cities)} cities; raise geoworld.passages or ask for fewer questions."
                )
            continue
        seen.add(draft.text)
        questions.append(_question(draft, f"geoworld-{split}-{len(questions)}", split, ids))
    return questions


def _question(draft: Draft, qid: str, split: str, ids: dict[str, int]) -> Question:
    titles = tuple(dict.fromkeys(look_up.title for level in draft.levels for look_up in level))
    return Question(
        qid=qid,
        dataset="geoworld",
        split=split,
        text=draft.text,
        golden_answers=(draft.answer,),
        type=draft.type,
        structure=structure_of("geoworld", draft.type),
        hops=len(titles),
        supporting_titles=titles,
        supporting_ids=tuple(ids[title] for title in titles),
    )
