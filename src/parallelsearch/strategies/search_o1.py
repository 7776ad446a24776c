"""Search-o1 (Li et al. 2025): the model searches in the midst of its reasoning, and a second call reads what was found.

The reasoning is one long reply. Where the model writes a query between QUERY tags it stops; the passages go, with the
reasoning so far and the query, to a second call ("Reason-in-Documents"), and only what that call notes is put between
RESULT tags before the reasoning goes on. The answer stands in a box. Limits are the published ones:
agent.max_search_turns searches (on questions of structure single agent.max_single_hop_search_turns at most),
agent.max_reasoning_turns generations of the reasoning model, agent.max_document_chars characters of each passage.

A reply that ends with a query is a search turn, whose observation is what the second call reads. The second call is a
step, whose observation is what the reasoning goes on with. A query that was searched before, or one beyond the limit,
is refused: no search is made, the turn is an invalid action and its observation the refusal. Without an answer the
episode ends at a reply without a box (invalid_action) or at the last generation (turn_limit).
"""

from __future__ import annotations

from parallelsearch.agent.boxed import boxed
from parallelsearch.agent.protocol import defuse
from parallelsearch.records import Action, StopReason, Structure
from parallelsearch.strategies.prompted import EpisodeEnded, PromptedEpisode

BEGIN_QUERY, END_QUERY = "<|begin_search_query|>", "<|end_search_query|>"
BEGIN_RESULT, END_RESULT = "<|begin_search_result|>", "<|end_search_result|>"
NOTES = "**Final Information**"
NOTHING_FOUND = "No helpful information found."
REPEATED = "This query was searched before. Look at its result above."
LIMIT_REACHED = "The search limit is reached. No further search can be made; answer from what is known."

_SINGLE_HOP = (
    "Question: Which year did the architect of the Sydney Opera House receive the Pritzker Prize?\n"
    f"I have to find the year. {BEGIN_QUERY}Pritzker Prize architect of the Sydney Opera House{END_QUERY}\n"
    f"{BEGIN_RESULT}Jørn Utzon, the architect of the Sydney Opera House, received the Pritzker Prize in 2003."
    f"{END_RESULT}\nThe answer is \\boxed{{2003}}.\n"
)
_MULTI_HOP = (
    "Question: Was the composer of Fidelio born before the composer of Aida?\n"
    f"I first need the composers. {BEGIN_QUERY}composer of Fidelio year of birth{END_QUERY}\n"
    f"{BEGIN_RESULT}Fidelio is by Ludwig van Beethoven, born in 1770.{END_RESULT}\n"
    f"Now the other one. {BEGIN_QUERY}composer of Aida year of birth{END_QUERY}\n"
    f"{BEGIN_RESULT}Aida is by Giuseppe Verdi, born in 1813.{END_RESULT}\n"
    "1770 is before 1813. The answer is \\boxed{yes}.\n"
)
REASONING = (
    "You answer a question by reasoning step by step, and you can search while you reason. To search, write"
    f" {BEGIN_QUERY} your query {END_QUERY} and stop. The passages that are found are read for you, and what helps"
    f" comes back between {BEGIN_RESULT} and {END_RESULT}. Then go on reasoning. You can search at most"
    " {searches} times. When you know the answer, write it in a few words as \\boxed{{answer}}.\n\n"
    "An example:\n\n{example}\n"
    "Now your question.\nQuestion: {question}\n"
)
READING = (
    "Somebody reasons about a question and has made a search. Read the documents that were found, and note what in them"
    " helps with the next step of the reasoning: facts that bear on the query, in one or two sentences that fit behind"
    f' the reasoning so far. Write them after the words "{NOTES}". If nothing in the documents helps, write'
    f' "{NOTES}" and "{NOTHING_FOUND}"\n\n'
    "Reasoning so far:\n{reasoning}\n\nQuery: {query}\n\nDocuments:\n{documents}\n"
)


async def search_o1(episode: PromptedEpisode) -> str | None:
    """Reasoning, searches and notes in turns until a boxed answer or a limit."""
    agent, question = episode.agent, episode.question
    single = question.structure is Structure.SINGLE
    limit = min(agent.max_search_turns, agent.max_single_hop_search_turns) if single else agent.max_search_turns
    message = REASONING.format(searches=limit, example=_SINGLE_HOP if single else _MULTI_HOP, question=episode.asked)
    reasoning = ""
    searched: set[str] = set()
    for _ in range(agent.max_reasoning_turns):
        reply = await episode.generate(message, reply_so_far=reasoning, stop=(END_QUERY,))
        query = _query(reply)
        if query is None:
            return boxed(reply)
        reasoning += reply
        same = " ".join(query.casefold().split())
        if same in searched or episode.searches >= limit:
            result = REPEATED if same in searched else LIMIT_REACHED
        else:
            searched.add(same)
            documents = await episode.look_up(query, max_document_chars=agent.max_document_chars)
            asked = READING.format(reasoning=reasoning, query=query, documents=documents)
            result = _notes(await episode.generate(asked, kind=Action.STEP))
        shown = f"\n\n{BEGIN_RESULT}{result}{END_RESULT}\n\n"
        episode.observe(shown)
        reasoning += shown
    raise EpisodeEnded(
        StopReason.TURN_LIMIT, f"No answer after agent.max_reasoning_turns = {agent.max_reasoning_turns} generations."
    )


def _query(reply: str) -> str | None:
    """The query that ends a reply; None for a reply that does not end with one, or with an empty one."""
    _, begin, query = reply.removesuffix(END_QUERY).rpartition(BEGIN_QUERY)
    return query.strip() or None if reply.endswith(END_QUERY) and begin else None


def _notes(reply: str) -> str:
    """What a reading call noted, without anything that could pose as one of the tags."""
    _, marker, notes = reply.rpartition(NOTES)
    return defuse(notes.strip()) or NOTHING_FOUND if marker else NOTHING_FOUND
