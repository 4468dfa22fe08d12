"""Steps of a small model on one thread, bare and under a session, in turns: session_step.py ROUNDS STEPS WIDTH; prints one JSON line.

Both loops are the same program in one process, with the same model and data; a round of one follows a round of the other.
"""

import json
import statistics
import sys
import time
from collections.abc import Iterator

import torch

from trainhouse.workers import Session

rounds, steps, width = (int(text) for text in sys.argv[1:])
torch.set_num_threads(1)
session = Session.start()


def made() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model = torch.nn.Sequential(*[part for _ in range(4) for part in (torch.nn.Linear(width, width), torch.nn.GELU())])
    return model, torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)


def round_ms(model: torch.nn.Module, optimizer: torch.optim.Optimizer, counter: Iterator[int]) -> float:
    """Process time of a step, which others on the machine do not stretch."""
    x = torch.ones(width, width)
    begun = time.thread_time()
    for _ in range(steps):
        next(counter)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (time.thread_time() - begun) * 1000 / steps


with session:
    bare, ours = made(), made()
    session.track(model=ours[0], optimizer=ours[1])
    plain, counted = iter(range(10**9)), session.steps(10**9, samples_per_step=width)
    for parts, counter in ((bare, plain), (ours, counted)):
        round_ms(*parts, counter)
    pairs = [(round_ms(*bare, plain), round_ms(*ours, counted)) for _ in range(rounds)]
bare_ms = statistics.median(one for one, _ in pairs)
more = statistics.median((other - one) / one for one, other in pairs)
print(json.dumps({"bare_ms": bare_ms, "session_share": more, "session_us": more * bare_ms * 1000}))
