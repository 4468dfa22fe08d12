"""A small byte-level GPT.

Each position begins as the sum of embeddings of its byte and of the few bytes before it (a table for each distance): what a short
n-gram knows comes cheap, and attention learns the rest.
Holds: position t sees bytes up to t only. A stage of a pipeline names its layers as the whole model does. The rows of `qkv` stand by head,
so that tensor-parallel ranks share it by heads.
"""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional

LOOKBACK = 4


class Block(nn.Module):
    """Attention and a feed-forward layer, each on a normalised residual stream of `(batch, time, width)`."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head_width = width // heads
        self.norm_attention, self.norm_feed = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, _ = x.shape
        q, k, v = self.qkv(self.norm_attention(x)).view(batch, time, -1, 3, self.head_width).permute(3, 0, 2, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        fed: Tensor = self.down(functional.gelu(self.up(self.norm_feed(x))))
        return x + fed


class ByteGPT(nn.Module):
    """Bytes `(batch, time)` int64 in, logits `(batch, time, 256)` out; `time` up to `context`. Between stages: `(batch, time, width)`."""

    def __init__(self, width: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        self.heads = heads
        self.bytes = nn.ModuleList(nn.Embedding(257, width) for _ in range(LOOKBACK))
        self.positions = nn.Parameter(torch.zeros(context, width))
        self.blocks = nn.ModuleDict({str(layer): Block(width, heads) for layer in range(layers)})
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256)
        for table in self.bytes:
            nn.init.normal_(table.weight, std=0.3)  # type: ignore[arg-type]
        for block in self.blocks.values():
            nn.init.zeros_(block.out.weight)  # type: ignore[union-attr, arg-type]
            nn.init.zeros_(block.down.weight)  # type: ignore[union-attr, arg-type]

    def stage(self, number: int, stages: int) -> "ByteGPT":
        """A copy with this stage's layers alone; the first has the embeddings, the last the head."""
        part = copy.deepcopy(self)
        for layer in range(len(self.blocks)):
            if layer * stages // len(self.blocks) != number:
                del part.blocks[str(layer)]
        for name in (("bytes", "positions") if number else ()) + (("norm", "head") if number < stages - 1 else ()):
            setattr(part, name, None)
        return part

    def forward(self, x: Tensor) -> Tensor:
        if self.bytes is not None:
            x = self._embedded(x)
        for block in self.blocks.values():
            x = block(x)
        return x if self.head is None else self.head(self.norm(x))  # type: ignore[no-any-return]

    def _embedded(self, text: Tensor) -> Tensor:
        time = text.shape[1]
        x: Tensor = self.positions[:time]
        for distance, table in enumerate(self.bytes):
            x = x + table(functional.pad(text, (distance, 0), value=256)[:, :time])
        return x
