"""An Engine over vLLM in this process: its asynchronous engine batches whatever is in flight."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from parallelsearch.engines.engine import FinishReason, Generation, Sampling
from parallelsearch.engines.token_folder import open_tokenizer
from parallelsearch.errors import EngineError
from parallelsearch.model_folder import require_safetensors


class VllmEngine:
    """Belongs to one event loop: that of its first request. Sampled log-probabilities are after the nucleus cut."""

    def __init__(self, engine: Any, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._engine = engine

    @classmethod
    def open(
        cls, folder: Path, *, max_rows: int = 256, max_model_len: int | None = None, dtype: str = "auto", seed: int = 0
    ) -> VllmEngine:
        """Loads the model in `folder` onto the GPU (with the CPU build of vLLM: into memory).

        `max_rows` sequences at most are decoded together, `max_model_len` tokens long at most (None: the model's own
        limit). EngineError where vLLM is missing or cannot load the model.
        """
        tokenizer, _ = open_tokenizer(folder)
        require_safetensors(Path(folder))
        try:
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.platforms import current_platform
            from vllm.v1.engine.async_llm import AsyncLLM
        except ImportError as error:
            raise EngineError(
                f"vLLM cannot be imported ({error}); run envs/install.sh gpu in a new environment, or set"
                " evaluation.engine to hf."
            ) from error
        settings = AsyncEngineArgs(
            model=str(folder),
            load_format="safetensors",
            trust_remote_code=False,
            dtype=dtype,
            seed=seed,
            max_num_seqs=max_rows,
            max_model_len=max_model_len,
            enforce_eager=current_platform.is_cpu(),  # compiling takes longer there than it saves
            enable_prefix_caching=True,  # each turn of an episode continues the one before
            logprobs_mode="processed_logprobs",
            disable_log_stats=True,
        )
        try:
            return cls(AsyncLLM.from_engine_args(settings), tokenizer)
        except Exception as error:
            raise EngineError(
                f"vLLM cannot load the model in {folder}: {' '.join(str(error).split())[:300]}; see its log."
            ) from error

    async def generate(
        self, token_ids: Sequence[int], *, max_tokens: int, stop: Sequence[str], sampling: Sampling
    ) -> Generation:
        """See Engine.generate."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        parameters = SamplingParams(
            max_tokens=max_tokens,
            stop=list(stop),
            include_stop_str_in_output=True,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=sampling.seed,
            logprobs=0,  # of the chosen token alone
            skip_special_tokens=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        try:
            prompt = {"prompt_token_ids": list(token_ids)}
            replies = [reply async for reply in self._engine.generate(prompt, parameters, uuid4().hex)]
        except Exception as error:
            raise EngineError(f"vLLM failed: {type(error).__name__}: {error}") from error
        if not replies or not replies[-1].outputs[0].token_ids:
            raise EngineError("vLLM returned no token; see its log.")
        made = replies[-1].outputs[0]
        ids = list(made.token_ids)
        chosen = zip(ids, made.logprobs or [{}] * len(ids), strict=True)
        log_probs = [known[token].logprob if token in known else math.nan for token, known in chosen]
        return Generation(ids, log_probs, _reason(made))

    def close(self) -> None:
        """Ends vLLM's processes."""
        self._engine.shutdown()


def _reason(made: Any) -> FinishReason:
    if made.finish_reason == "length":
        return "length"
    return "stop_string" if isinstance(made.stop_reason, str) else "eos"
