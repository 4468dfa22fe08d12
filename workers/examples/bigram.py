"""The baseline that a language model must beat: predict each byte from the one before it, by counting.

Holds: pure and deterministic.
"""

import torch
from torch import Tensor

SMOOTHING = 0.1


def bits_per_byte(train: Tensor, windows: Tensor) -> float:
    """Cross-entropy, in bits a byte, of a byte-bigram model counted on `train` (with additive smoothing), on the same targets that a
    model of whole windows predicts: `windows` is `(n, context + 1)`, targets are all but the first of each."""
    text = train.long()
    counts = torch.bincount(text[:-1] * 256 + text[1:], minlength=65536).view(256, 256).double() + SMOOTHING
    log_probability = (counts / counts.sum(dim=1, keepdim=True)).log2()
    return float(-log_probability[windows[:, :-1], windows[:, 1:]].mean())
