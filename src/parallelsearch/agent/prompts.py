"""The prompt templates. Each is a user message, put through the tokenizer's own chat template.

`research` is the exception: it is written for base models, a conversation in plain text that the model goes on with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from parallelsearch.agent.protocol import inert
from parallelsearch.errors import ConfigError

_PROTOCOL = (
    "Answer the given question. You must conduct reasoning inside <think> and </think> first every time you get new"
    " information. After reasoning, if you find you lack some knowledge, you can call a search engine by"
    " <search> query </search> and it will return the top searched results between <information> and </information>."
)
_DECOMPOSE = (
    " If the original query is complex or involves multiple parts, you are encouraged to decompose it into smaller"
    " sub-questions, separated by ##. For example: <search> sub-question 1 ## sub-question 2 </search>."
)
_ANSWER = (
    " You can search as many times as your want. If you find no further external knowledge needed, you can directly"
    " provide the answer inside <answer> and </answer>, without detailed illustrations. For example,"
    " <answer> Beijing </answer>. Question: {question}\n"
)

_IN_SHORT = (
    "Think inside <think> and </think>. Then either search, with queries inside <search> and </search>, or answer, with"
    " a few words inside <answer> and </answer>. Look up independent facts at once, with ## between the queries."
    " Question: {question}\n"
)
_R1 = (
    "Answer the given question. First reason inside <think> and </think>, then give the answer inside <answer> and"
    " </answer>, without detailed illustrations. For example, <answer> Beijing </answer>. Question: {question}\n"
)
# ReSearch's two prompts, in its structure: what happens in which tags, an example of the tags, where the answer stands.
_RESEARCH = (
    " first thinks about the question and then gives the answer. While thinking, {actor} can search Wikipedia for facts"
    " about specific topics where they are needed. Thoughts stand inside <think> </think>, a search query inside"
    " <search> </search>, what was found inside <result> </result>, and the answer inside <answer> </answer>. For"
    " example, <think> This is a thought. </think> <search> a search query </search> <result> what was found </result>"
    " <think> This is a thought. </think> <answer> The final answer is \\[ \\boxed{answer here} \\] </answer>. The"
    " last part of the answer is the exact final answer inside \\boxed{}, in LaTeX."
)
# Worked examples that stand before the question as earlier turns of the chat: (question, transcript).
_EXAMPLES = (
    (
        "Which river is longer, the Rhine or the Elbe?",
        "<think> I need the lengths of two rivers.</think>\n<search> Rhine length ## Elbe length</search>\n\n"
        "<information>Results for Rhine length:\nDoc 1(Title: Rhine) The Rhine is about 1,230 km long.\n"
        "Results for Elbe length:\nDoc 1(Title: Elbe) The Elbe is about 1,094 km long.\n</information>\n\n"
        "<think> 1,230 km is more than 1,094 km.</think>\n<answer> the Rhine</answer>",
    ),
    (
        "Where was the composer of Fidelio born?",
        "<think> I need the composer first.</think>\n<search> composer of Fidelio</search>\n\n"
        "<information>Results for composer of Fidelio:\nDoc 1(Title: Fidelio) Fidelio is the only opera by Ludwig van"
        " Beethoven.\n</information>\n\n"
        "<think> It is Beethoven. I need his place of birth.</think>\n<search> Beethoven place of birth</search>\n\n"
        "<information>Results for Beethoven place of birth:\nDoc 1(Title: Ludwig van Beethoven) Beethoven was born in"
        " Bonn in 1770.\n</information>\n\n"
        "<think> He was born in Bonn.</think>\n<answer> Bonn</answer>",
    ),
)

TEMPLATES = {
    "short": "Question: {question}\n",
    "search_r1": _PROTOCOL + _ANSWER,
    "parallel": _PROTOCOL + _DECOMPOSE + _ANSWER,
    "examples": _IN_SHORT,
    "r1": _R1,
    "research": "A conversation between User and Assistant. The user asks a question, and the assistant answers it. The"
    " assistant" + _RESEARCH.replace("{actor}", "the assistant") + " User: {question} Assistant:",
    "research_system": "{question}",
}
SYSTEM_MESSAGES = {
    "research_system": "You are a helpful assistant that answers the user's question step by step with the help of a"
    " Wikipedia search. An assistant like you" + _RESEARCH.replace("{actor}", "it")
}


def messages(template: str, question: str) -> list[dict[str, str]]:
    """The chat of a template: its system message where it has one, and its user message."""
    system = [{"role": "system", "content": SYSTEM_MESSAGES[template]}] if template in SYSTEM_MESSAGES else []
    return [*system, {"role": "user", "content": user_message(template, question)}]


def user_message(template: str, question: str) -> str:
    """The user message of a template. The published templates of Search-R1's kind end a question with '?'.

    Tags of the protocol and control tokens of chat templates in the question are text there.
    """
    text = inert(question.strip())
    if template in ("search_r1", "parallel", "r1") and not text.endswith("?"):
        text += "?"
    return TEMPLATES[template].replace("{question}", text)


def prompt_text(template: str, question: str, tokenizer: Any) -> str:
    """The whole prompt of a template, special tokens written out; `examples` puts two answered questions before it."""
    if template == "research":
        return user_message(template, question)
    shown = _EXAMPLES if template == "examples" else ()
    earlier = [(user_message(template, example), transcript) for example, transcript in shown]
    return chat_prompt(user_message(template, question), tokenizer, earlier, SYSTEM_MESSAGES.get(template))


def chat_prompt(
    message: str, tokenizer: Any, earlier: Sequence[tuple[str, str]] = (), system: str | None = None
) -> str:
    """A user message as a prompt, after a system message and `earlier` pairs of message and reply.

    A tokenizer without a chat template is a ConfigError.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise ConfigError(
            f"The tokenizer {getattr(tokenizer, 'name_or_path', '')!r} has no chat template;"
            " use a model whose tokenizer_config.json or chat_template.jinja holds one."
        )
    turns = [{"role": "system", "content": system}] if system else []
    for said, reply in earlier:
        turns += [{"role": "user", "content": said}, {"role": "assistant", "content": reply}]
    turns.append({"role": "user", "content": message})
    return tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)


def prompt_token_ids(template: str, question: str, tokenizer: Any) -> list[int]:
    """Token ids of the whole prompt; the chat template supplies every special token."""
    return tokenizer.encode(prompt_text(template, question, tokenizer), add_special_tokens=False)
