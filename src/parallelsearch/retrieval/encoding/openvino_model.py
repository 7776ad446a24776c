"""An encoder's model on a processor, through OpenVINO: one call a batch, in bfloat16 where it can.

Against PyTorch it gave half as much again in batches and more than twice for a single request, where PyTorch's hundreds
of small operations each wait for Python.
"""

from __future__ import annotations

import os
import threading
import warnings
from pathlib import Path

import numpy as np

from parallelsearch.errors import DataError
from parallelsearch.machine.processor import processor_precision
from parallelsearch.retrieval.encoding.declaration import Pooling
from parallelsearch.retrieval.encoding.packing import PackedRows
from parallelsearch.retrieval.encoding.torch_model import load_body

GRAPH, GRAPH_WEIGHTS = "openvino.xml", "openvino.bin"
OPENVINO_NAMES = {"bfloat16": "bf16", "float32": "f32"}


def write_graph(folder: Path) -> None:
    """Writes the model of `folder` (Hugging Face layout) as OpenVINO's GRAPH and GRAPH_WEIGHTS beside it."""
    import openvino
    import torch

    model = load_body(folder, "auto")
    stored = model.dtype

    class TokenVectors(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model.float().requires_grad_(False)

        def forward(self, ids: torch.Tensor, texts: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
            mask = (texts.unsqueeze(2) == texts.unsqueeze(1)).unsqueeze(1)
            return self.model(input_ids=ids, attention_mask=mask, position_ids=positions).last_hidden_state

    example = {name: torch.ones(2, 8, dtype=torch.long) for name in ("ids", "texts", "positions")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's tracing, about values that do not depend on the input
        graph = openvino.convert_model(
            TokenVectors(), example_input=example, input=[openvino.PartialShape([-1, -1])] * len(example)
        )
    openvino.save_model(graph, folder / GRAPH, compress_to_fp16=stored == torch.float16)


class OpenVinoModel:
    """Token ids -> vectors on a processor. Thread-safe.

    It computes with OMP_NUM_THREADS threads, or with one for each processor this process may use.
    """

    def __init__(self, folder: Path, pooling: Pooling) -> None:
        import openvino

        if not (folder / GRAPH).is_file():
            raise DataError(f"{folder / GRAPH} is missing; rerun `parallelsearch encoder export`.")
        self.precision = processor_precision()
        self._pooling = pooling
        threads = os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0))
        settings = {
            "INFERENCE_PRECISION_HINT": OPENVINO_NAMES[self.precision],
            "INFERENCE_NUM_THREADS": int(threads),
            "ENABLE_CPU_PINNING": False,  # several processes of a study share the processors
            "PERFORMANCE_HINT": "LATENCY",
        }
        compiled = openvino.Core().compile_model(folder / GRAPH, "CPU", settings)
        self.dim = compiled.output(0).get_partial_shape()[2].get_length()
        self._request = compiled.create_infer_request()
        self._one_at_a_time = threading.Lock()

    def vectors(self, packed: PackedRows, texts: int) -> np.ndarray:
        """float32 [texts, dim]: the mean of each text's token vectors, or its first one (pooling cls)."""
        with self._one_at_a_time:
            output = self._request.infer([packed.ids, packed.texts, packed.positions])[0]
            # The tokens of a text stand side by side, and runs of padding between them.
            owners, tokens = packed.texts.ravel(), np.asarray(output, dtype=np.float32).reshape(-1, self.dim)
            starts = np.flatnonzero(np.diff(owners, prepend=-2))
            pooled: np.ndarray
            if self._pooling == "cls":
                pooled = tokens[starts]
            else:
                lengths = np.diff(starts, append=len(owners)).astype(np.float32)
                pooled = np.add.reduceat(tokens, starts) / lengths[:, None]
        result = np.empty((texts, self.dim), dtype=np.float32)
        of_texts = owners[starts] >= 0
        result[owners[starts][of_texts]] = pooled[of_texts]
        return result
