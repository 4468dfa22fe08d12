"""Train a byte-level GPT on the text that Python carries, on any number of ranks; runs under Trainhouse, torchrun, or alone.

    python -m trainhouse.workers.examples.gpt --steps 500

The layout is the spec's `parallelism` (see `laid_out`); under torchrun TRAINHOUSE_PARALLELISM='{"dp": 2, "tp": 2}' gives it. A pipeline
takes `--microbatches` of each batch, as many as it has ranks by default. How a step is computed is the spec's `training`;
`--batch` is the size of a micro-batch.

Every flag can be given as a hyperparameter of the job too. At the end it evaluates on files that training never saw, beside the entropy
of a byte-bigram model, and prints a hash of the weights.
Holds: with 1 or 2 ranks on CPUs, a run that was killed and resumed ends with the same weights, bit for bit, as one that was not.
"""

import argparse
import math
import os
import time
from collections.abc import Mapping

import torch
from torch import Tensor

from trainhouse.events.model.spec import Scalar
from trainhouse.workers import Session
from trainhouse.workers.examples.bigram import bits_per_byte
from trainhouse.workers.examples.laid_out import LaidOut, cross_entropy
from trainhouse.workers.examples.model import ByteGPT
from trainhouse.workers.examples.text import Corpus, Windows, load_corpus, windows_at

DEFAULTS: dict[str, int | float] = {
    "steps": 500,
    "width": 96,
    "layers": 2,
    "heads": 4,
    "context": 128,
    "batch": 16,
    "lr": 4e-3,
    "eval_windows": 1024,
    "checkpoint_every": 0,
    "microbatches": 0,
}


def parse(arguments: list[str] | None, hyperparameters: Mapping[str, Scalar]) -> argparse.Namespace:
    """Flags > hyperparameters > defaults."""
    parser = argparse.ArgumentParser(description="Train a byte-level GPT on Python's own text.")
    for name, default in DEFAULTS.items():
        given = str(hyperparameters.get(name, default))
        parser.add_argument("--" + name.replace("_", "-"), type=type(default), default=type(default)(given))
    return parser.parse_args(arguments)


def rate(step: int, steps: int) -> float:
    """Factor of the learning rate: a short warm-up, then half a cosine down to a twentieth."""
    warm_up = max(1, min(20, steps // 10))
    if step < warm_up:
        return (step + 1) / warm_up
    done = (step - warm_up) / max(1, steps - warm_up)
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


def evaluate(model: LaidOut, windows: Tensor, session: Session, batch: int) -> float:
    """Bits a byte on the held-out windows, each data rank its share, in batches of one size."""
    mine = windows[session.data_rank :: session.data_size]
    parts = [mine[first : first + batch] for first in range(0, -(-len(windows) // session.data_size), batch)]

    def measure(part: Tensor) -> dict[str, float]:
        filled = torch.cat([part, windows[:1].expand(batch - len(part), -1)]).to(session.device)
        logits = model.logits(filled)
        if logits is None or not len(part):
            return {}
        loss = cross_entropy(logits[: len(part)], filled[: len(part), 1:])
        return {"bits_per_byte": loss.item() / math.log(2), "samples": len(part)}

    return session.validate(parts, measure)["bits_per_byte"]


def share_of(session: Session, flags: argparse.Namespace) -> int:
    """Windows that a data rank takes in one step: micro-batches of `--batch`, unless the spec says how large they are."""
    return (session.training.micro_batch or int(flags.batch)) * (session.training.accumulation or 1)


def train(session: Session, flags: argparse.Namespace, corpus: Corpus) -> LaidOut:
    """Train to the last step, from where the newest checkpoint is."""
    share = share_of(session, flags)
    model = LaidOut(session, ByteGPT(flags.width, flags.layers, flags.heads, flags.context), flags.microbatches, share)
    mixed = {"foreach": False} if session.parallelism.tp > 1 else {}  # foreach takes no parameters of different meshes
    optimizer = torch.optim.AdamW(model.parameters(), lr=flags.lr, betas=(0.9, 0.98), weight_decay=0.01, **mixed)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, flags.steps))
    loader = Windows(corpus.train, flags.context, share, session.seed, session.data_rank, session.data_size)
    session.track(model=model.tracked, optimizer=optimizer, schedule=schedule, loader=loader)
    began, seen = time.perf_counter(), 0
    tokens_per_step = share * flags.context * session.data_size
    every = flags.checkpoint_every or None
    for _ in session.steps(
        flags.steps,
        save_every_steps=every,
        tokens_per_step=tokens_per_step,
        count_flops=not session.training.compile,
        microbatches=model.microbatches,
    ):
        with session.data_wait():
            windows = next(loader).to(session.device)
        loss = model.step(windows)
        session.optimizer_step(optimizer, clip_norm=1.0)
        seen += len(windows) * session.data_size
        samples_per_s = seen / (time.perf_counter() - began)
        session.log(loss=loss.item(), learning_rate=schedule.get_last_lr()[0], samples_per_s=samples_per_s)
        schedule.step()
    return model


def main(arguments: list[str] | None = None) -> None:
    """Entry point of a rank."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what cuBLAS wants for the same bits every time
    session = Session.start()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    flags = parse(arguments, session.hyperparameters)
    corpus = load_corpus()
    with session:
        model = train(session, flags, corpus)
        starts = torch.arange(0, len(corpus.held_out) - flags.context - 1, flags.context)
        starts = starts[:: max(1, len(starts) // flags.eval_windows)]
        windows = windows_at(corpus.held_out, starts, flags.context)
        held_out = evaluate(model, windows, session, share_of(session, flags))
        weights = model.weights_hash()
        if session.rank == 0:
            bigram = bits_per_byte(corpus.train, windows)
            session.log(held_out_bits_per_byte=held_out, bigram_bits_per_byte=bigram)
            print(f"held-out bits per byte: {held_out:.4f} (byte bigrams: {bigram:.4f}; {corpus.files} files, {windows.numel()} bytes)")
            print(f"weights sha256 {weights}")


if __name__ == "__main__":
    main()
