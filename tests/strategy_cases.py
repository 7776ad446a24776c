"""What the tests need to know of each strategy: replies that lead it to an answer, and its limits by hand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    """`replies` answer 'Which is older, Oslo or Bergen?' with Oslo; so many of them come before the first search.

    With two search turns, four generations of a reasoning model and four sub-questions of a plan, an episode takes at
    most `most_calls` generations and `most_searches` searches.
    """

    replies: list[str]
    before_the_first_search: int
    most_calls: int
    most_searches: int


CASES = {
    "direct": Case(["Oslo"], 0, most_calls=1, most_searches=0),
    "chain_of_thought": Case(["So the answer is: Oslo."], 0, most_calls=1, most_searches=0),
    "rag": Case(["Oslo"], 0, most_calls=1, most_searches=1),
    "ircot": Case(["Oslo is old.", "So the answer is: Oslo."], 0, most_calls=2, most_searches=2),
    "iter_retgen": Case(["Oslo is old.", "So the answer is: Oslo."], 0, most_calls=2, most_searches=2),
    # Four generations of the reasoning model, two of which are searches that are read.
    "search_o1": Case(
        ["<|begin_search_query|>Oslo<|end_search_query|>", "Final Information\n\nold", "\\boxed{Oslo}"],
        before_the_first_search=1,
        most_calls=4 + 2,
        most_searches=2,
    ),
    "dag_plan": Case(
        ["1: founded Oslo", "1040", "Oslo"], before_the_first_search=1, most_calls=1 + 4 + 1, most_searches=4
    ),
}
