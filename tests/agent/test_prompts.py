"""The prompt templates against the prompts of published runs."""

from __future__ import annotations

import gzip
import json

import pytest

from parallelsearch.agent.prompts import prompt_text, prompt_token_ids, user_message
from parallelsearch.errors import ConfigError


def test_search_r1_is_the_prompt_of_its_published_runs(shared_data):
    seen = 0
    for policy in ("base", "instruct"):
        with gzip.open(shared_data / "raw" / f"search_r1_traces_bamboogle_{policy}.jsonl.gz", "rt") as lines:
            for line in lines:
                row = json.loads(line)
                message = row["output"]["query"].split("<|im_start|>user\n")[1].split("<|im_end|>")[0]
                assert user_message("search_r1", row["question"]) == message
                seen += 1
    assert seen == 250


def test_parallel_adds_one_passage_before_the_sentence_on_how_often_to_search():
    plain, parallel = (user_message(name, "Who?") for name in ("search_r1", "parallel"))
    head, tail = plain.split(" You can search as many times as your want.")
    assert parallel.startswith(head) and parallel.endswith(tail)
    added = parallel[len(head) : -len(tail)].removesuffix(" You can search as many times as your want.")
    assert "separated by ##" in added and "<search> sub-question 1 ## sub-question 2 </search>" in added
    # The published scorer relies on these counts; ours never reads the prompt.
    assert (plain.count("<search>"), parallel.count("<search>"), parallel.count("<answer>")) == (1, 2, 2)


@pytest.mark.parametrize(
    ("template", "question", "end"),
    [
        ("short", "Who was it", "Question: Who was it\n"),
        ("short", "Who was it?", "Question: Who was it?\n"),
        ("search_r1", "Who was it", "Question: Who was it?\n"),
        ("search_r1", "Who was it? ", "Question: Who was it?\n"),
        ("parallel", "Name {one} of them.", "Question: Name {one} of them.?\n"),
        ("parallel", "", "Question: ?\n"),
    ],
)
def test_questions(template, question, end):
    message = user_message(template, question)
    assert message.endswith(end)
    assert template != "short" or message == end


def test_the_chat_template_surrounds_the_message(tokenizer, byte_tokenizer):
    text = prompt_text("short", "Who?", tokenizer)
    assert text == "<|im_start|>user\nQuestion: Who?\n<|im_end|>\n<|im_start|>assistant\n"
    ids = prompt_token_ids("short", "Who?", tokenizer)
    assert ids[0] == tokenizer.convert_tokens_to_ids("<|im_start|>") and tokenizer.decode(ids) == text
    assert prompt_text("short", "Who?", byte_tokenizer) == "user: Question: Who?\nassistant:"


def test_a_tokenizer_without_a_chat_template_is_refused(byte_tokenizer):
    import copy

    bare = copy.deepcopy(byte_tokenizer)
    bare.chat_template = None
    with pytest.raises(ConfigError, match="chat template"):
        prompt_text("short", "Who?", bare)
