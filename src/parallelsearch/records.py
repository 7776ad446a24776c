"""The words the whole house speaks: questions, passages, and what happened while a question was answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice


class Structure(StrEnum):
    """How the look-ups that a question needs depend on one another."""

    PARALLEL = "parallel"
    SEQUENTIAL = "sequential"
    SINGLE = "single"
    MIXED = "mixed"
    OTHER = "other"


class Action(StrEnum):
    """What the model asked for at the end of one generation.

    A step is a generation that a strategy asked for on its way to the answer: a plan, notes, a sub-question's answer.
    """

    SEARCH = "search"
    ANSWER = "answer"
    INVALID = "invalid"
    STEP = "step"


class StopReason(StrEnum):
    """Why an episode ended. The last three are infrastructure failures and never enter a loss."""

    ANSWERED = "answered"
    INVALID_ACTION = "invalid_action"
    TURN_LIMIT = "turn_limit"
    TOKEN_LIMIT = "token_limit"
    RETRIEVER_ERROR = "retriever_error"
    ENGINE_ERROR = "engine_error"

    @property
    def is_infrastructure_failure(self) -> bool:
        return self in (StopReason.RETRIEVER_ERROR, StopReason.ENGINE_ERROR)


@dataclass(frozen=True, slots=True)
class Question:
    """One question of one data set.

    `supporting_ids` are passage ids (row numbers) of the corpus the question was made for, where they are known.
    """

    qid: str
    dataset: str
    split: str
    text: str
    golden_answers: tuple[str, ...]
    type: str
    structure: Structure
    hops: int | None = None
    supporting_titles: tuple[str, ...] = ()
    supporting_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Passage:
    """One retrievable text; `id` is its row number in passages.parquet."""

    id: int
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage and its score (the larger the better; what it is depends on the kind of index) for one sub-query."""

    passage: Passage
    score: float


@dataclass(frozen=True, slots=True)
class SubQuery:
    """One piece of a search turn with what the retriever returned; `shown` hits reached the model."""

    text: str
    hits: tuple[Hit, ...] = ()
    shown: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """One generation of the model and, after a search, what the search found.

    `text` is exactly what the model generated, `observation` exactly what it was shown then ('' after an answer).
    Times are seconds of wall time, counts are tokens.
    """

    text: str
    action: Action
    sub_queries: tuple[SubQuery, ...] = ()
    answer: str | None = None
    observation: str = ""
    model_tokens: int = 0
    observation_tokens: int = 0
    generate_seconds: float = 0.0
    search_seconds: float = 0.0

    @property
    def generated(self) -> bool:
        """False for a search that a strategy made by itself, without asking the model."""
        return bool(self.text or self.model_tokens)


@dataclass(frozen=True, slots=True)
class Episode:
    """Everything that happened between a question and its answer; the only currency of reward, metrics and report."""

    question: Question
    turns: tuple[Turn, ...]
    answer: str | None
    stop_reason: StopReason
    well_formed: bool
    prompt: str = ""
    prompt_tokens: int = 0
    seconds: float = 0.0
    error: str = field(default="")

    @property
    def llm_calls(self) -> int:
        """Number of generations (the paper's `turns`)."""
        return sum(turn.generated for turn in self.turns)

    @property
    def searches(self) -> int:
        """Number of search turns, whatever the number of sub-queries in each."""
        return sum(turn.action is Action.SEARCH for turn in self.turns)

    @property
    def decomposed(self) -> bool:
        """True when at least one search turn held two or more different sub-queries."""
        return any(distinct_sub_queries(turn) > 1 for turn in self.turns)

    @property
    def decomposed_first(self) -> bool:
        """True when the first search turn already held two or more different sub-queries."""
        searches = (turn for turn in self.turns if turn.action is Action.SEARCH)
        return any(distinct_sub_queries(turn) > 1 for turn in islice(searches, 1))

    @property
    def transcript(self) -> str:
        """What followed the prompt: generations and observations in order."""
        return "".join(turn.text + turn.observation for turn in self.turns)


def distinct_sub_queries(turn: Turn) -> int:
    """Number of sub-queries of a turn that differ beyond case and white space, empty ones excluded."""
    return len({" ".join(q.text.casefold().split()) for q in turn.sub_queries} - {""})
