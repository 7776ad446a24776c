"""Runs veRL's SFT trainer in this process and writes what reaches its loss: `python sft_loss_probe.py OUT.json ...`.

The further arguments are Hydra overrides. Of each call of veRL's sft_loss OUT holds, for each row, its ids, its mask
and the log-probabilities; and its value.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}

from verl.trainer import sft_trainer
from verl.workers.utils import losses

from parallelsearch.training.verl.sft import TimedSFTTrainer
from parallelsearch.training.verl.sft_config import compose_sft

verls_loss = losses.sft_loss
calls = []


def recorded(config, model_output, data, dp_group=None):
    loss, metrics = verls_loss(config, model_output, data, dp_group)
    columns = (data["input_ids"], data["loss_mask"], model_output["log_probs"])
    rows = [[part.tolist() for part in row] for row in zip(*(column.unbind() for column in columns), strict=True)]
    calls.append({"rows": rows, "loss": loss.item()})
    return loss, metrics


losses.sft_loss = recorded
sft_trainer.SFTTrainer = TimedSFTTrainer
sft_trainer.run_sft(compose_sft(sys.argv[2:]))
Path(sys.argv[1]).write_text(json.dumps(calls))
