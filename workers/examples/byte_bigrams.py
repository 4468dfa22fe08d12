"""Program of an evaluation: byte bigrams counted on a text, the baseline that a language model of bytes must beat.

    trainhouse submit --data chats@1.0.0 -- python -m trainhouse.workers.evaluation run evaluation.yaml

The model is the text; `evaluation.yaml` beside this file is the description. Samples are rows with `text`, and `user` as their group.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

SMOOTHING = 0.1
BYTES = 256


class ByteBigrams(nn.Module):
    """Bytes `(batch, time)` int64 in, logits `(batch, time, 256)` of the next byte out."""

    def __init__(self, text: bytes) -> None:
        super().__init__()
        read = torch.tensor(list(text), dtype=torch.int64)
        counts = torch.bincount(read[:-1] * BYTES + read[1:], minlength=BYTES * BYTES).view(BYTES, BYTES).double() + SMOOTHING
        self.register_buffer("logits", (counts / counts.sum(1, keepdim=True)).log())

    def forward(self, batch: Tensor) -> Tensor:
        found: Tensor = self.get_buffer("logits")[batch]
        return found


def load(path: Path, device: torch.device) -> ByteBigrams:
    """The model of a version, on a device."""
    return ByteBigrams(path.read_bytes()).to(device)


def decode(sample: dict[str, Any]) -> dict[str, Any]:
    """A row as the bytes of its text, with the group that it belongs to."""
    row = json.loads(sample["json"])
    return {"input": list(row["text"].encode()), "user": row["user"]}
