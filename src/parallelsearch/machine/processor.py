"""What the processor can do."""

from __future__ import annotations

import os
from pathlib import Path

BF16_FLAGS = ("amx_bf16", "avx512_bf16")


def processor_precision() -> str:
    """bfloat16 where the processor has instructions for it and PARALLELSEARCH_FLOAT32 is not set, else float32."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:  # not Linux
        flags = ""
    wanted = any(flag in flags for flag in BF16_FLAGS) and not os.environ.get("PARALLELSEARCH_FLOAT32")
    return "bfloat16" if wanted else "float32"
