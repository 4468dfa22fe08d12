"""What `training.deterministic` costs a step: the same model with it and without, in turns, on one thread of one process."""

import time
from statistics import median

import torch

from tests.bench import report
from trainhouse.workers.examples.model import ByteGPT
from trainhouse.workers.session.process.randomness import be_deterministic

ROUNDS, STEPS, BATCH, CONTEXT = 7, 2, 4, 128


def run() -> None:
    """Prints the time (on a CPU: processor time) of a step with deterministic algorithms over that without, and its spread."""
    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = ByteGPT(256, 4, 4, CONTEXT).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    windows = torch.randint(0, 256, (BATCH, CONTEXT + 1), device=device)
    benchmark = torch.backends.cudnn.benchmark
    factors = []
    _steps_s(model, optimizer, windows)
    for _ in range(ROUNDS):
        plain_s = _steps_s(model, optimizer, windows)
        be_deterministic()
        _steps_s(model, optimizer, windows)
        deterministic_s = _steps_s(model, optimizer, windows)
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.benchmark = benchmark
        factors.append(deterministic_s / plain_s)
    report.line("deterministic", value=median(factors), unit="of a plain step", low=min(factors), high=max(factors), device=device.type)


def _steps_s(model: ByteGPT, optimizer: torch.optim.Optimizer, windows: torch.Tensor) -> float:
    clock = time.perf_counter if windows.is_cuda else time.process_time  # other processes take the cores, too
    began = clock()
    for _ in range(STEPS):
        logits = model(windows[:, :-1])
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    if windows.is_cuda:
        torch.cuda.synchronize()
    return clock() - began
