"""A small Qwen2 policy with a tokenizer of its own, in the Hugging Face layout every engine reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from parallelsearch.agent.tags import SEARCH_R1
from parallelsearch.config import PolicyConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, Qwen2ForCausalLM

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TAG_TOKENS = SEARCH_R1.tokens
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MAX_POSITIONS = 2048


def train_tokenizer(texts: Iterable[str], vocabulary: int, tags: Sequence[str] = TAG_TOKENS) -> PreTrainedTokenizerBase:
    """A byte-level BPE of `vocabulary` tokens in Qwen2's own layout (single digits, NFC), each of `tags` one token.

    Qwen2's layout is kept because Transformers rebuilds the tokenizer of every Qwen2 model in it when it is loaded.
    """
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
    from transformers import Qwen2Tokenizer
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    room = vocabulary - len(CONTROL_TOKENS) - len(tags)
    trainer = trainers.BpeTrainer(
        vocab_size=room, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    bpe.train_from_iterator(texts, trainer)
    merges = [tuple(line.split(" ")) for line in _merges(bpe)]
    tokenizer = Qwen2Tokenizer(
        vocab=bpe.get_vocab(),
        merges=merges,  # type: ignore[arg-type]  # the annotation forgets the pairs that it takes
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
        model_max_length=MAX_POSITIONS,
    )
    tokenizer.add_tokens(list(tags))
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def build_policy(config: PolicyConfig, tokenizer: PreTrainedTokenizerBase, seed: int) -> Qwen2ForCausalLM:
    """A Qwen2 language model with random weights for `tokenizer`, float32, input and output embeddings tied."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    hidden = config.hidden_size
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=-(-len(tokenizer) // 64) * 64,
            hidden_size=hidden,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=max(1, config.heads // 2),
            intermediate_size=3 * hidden,
            max_position_embeddings=MAX_POSITIONS,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def save_policy(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Writes weights (safetensors), configuration and tokenizer in the Hugging Face layout."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _merges(bpe: object) -> list[str]:
    import json

    merges = json.loads(bpe.to_str())["model"]["merges"]  # type: ignore[attr-defined]
    return [merge if isinstance(merge, str) else " ".join(merge) for merge in merges]
