"""The prompt templates. Each is one user message, put through the tokenizer's own chat template."""

from __future__ import annotations

from typing import Any

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

_EXAMPLES = (
    "Answer the question. First think inside <think> and </think>. Then either search, by writing queries inside"
    " <search> and </search>, or answer, by writing a few words inside <answer> and </answer>. Look up independent"
    " facts at once, with ## between the queries. Search results come inside <information> and </information>.\n\n"
    "Question: Which river is longer, the Rhine or the Elbe?\n"
    "<think> I need the lengths of two rivers.</think>\n<search> length of the Rhine ## length of the Elbe</search>\n"
    "<information>The Rhine is about 1,230 km long. The Elbe is about 1,094 km long.</information>\n"
    "<think> 1,230 is more than 1,094.</think>\n<answer> the Rhine</answer>\n\n"
    "Question: Where was the composer of Fidelio born?\n"
    "<think> I need the composer first.</think>\n<search> composer of Fidelio</search>\n"
    "<information>Fidelio is the only opera by Ludwig van Beethoven.</information>\n"
    "<think> It is Beethoven. I need his place of birth.</think>\n"
    "<search> Ludwig van Beethoven place of birth</search>\n"
    "<information>Ludwig van Beethoven was born in Bonn in 1770.</information>\n"
    "<think> He was born in Bonn.</think>\n<answer> Bonn</answer>\n\n"
    "Question: {question}\n"
)

TEMPLATES = {
    "short": "Question: {question}\n",
    "search_r1": _PROTOCOL + _ANSWER,
    "parallel": _PROTOCOL + _DECOMPOSE + _ANSWER,
    "examples": _EXAMPLES,
}


def user_message(template: str, question: str) -> str:
    """The user message of a template. The published templates (search_r1, parallel) end a question with '?'."""
    text = question.strip()
    if template in ("search_r1", "parallel") and not text.endswith("?"):
        text += "?"
    return TEMPLATES[template].replace("{question}", text)


def prompt_text(template: str, question: str, tokenizer: Any) -> str:
    """The whole prompt of a template, special tokens written out."""
    return chat_prompt(user_message(template, question), tokenizer)


def chat_prompt(message: str, tokenizer: Any) -> str:
    """One user message as a prompt. A tokenizer without a chat template is a ConfigError."""
    if not getattr(tokenizer, "chat_template", None):
        raise ConfigError(
            f"The tokenizer {getattr(tokenizer, 'name_or_path', '')!r} has no chat template;"
            " use a model whose tokenizer_config.json or chat_template.jinja holds one."
        )
    messages = [{"role": "user", "content": message}]
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def prompt_token_ids(template: str, question: str, tokenizer: Any) -> list[int]:
    """Token ids of the whole prompt; the chat template supplies every special token."""
    return tokenizer.encode(prompt_text(template, question, tokenizer), add_special_tokens=False)
