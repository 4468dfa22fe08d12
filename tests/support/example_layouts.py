"""The example program in every layout of a number of gloo ranks: losses beside those of one rank, and restores in other layouts.

Holds: the session is the real one, with the job's chain in the gang's store; all layouts train the same weights on the same windows, so
losses differ by rounding alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from tests.support.gloo_gang import MOST_S, Groups, run_gang
from trainhouse.checkpointing.chain.commits import entries_newest_first
from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.checkpointing.chain.retention import RetentionPolicy
from trainhouse.checkpointing.checkpointer import Checkpointer, CheckpointerSettings
from trainhouse.events.model.parallelism import Parallelism, PipelineSchedule
from trainhouse.events.model.spec import Divergence
from trainhouse.events.model.training import Training
from trainhouse.workers.examples import gpt
from trainhouse.workers.examples.laid_out import LaidOut, inner
from trainhouse.workers.examples.model import ByteGPT
from trainhouse.workers.examples.text import Corpus, Windows, load_corpus, windows_at
from trainhouse.workers.session.context import Context
from trainhouse.workers.session.logging.sink import open_sink
from trainhouse.workers.session.process.randomness import seed_all
from trainhouse.workers.session.process_groups import Gang
from trainhouse.workers.session.saving.checkpoint_saver import CommitSaver, Saver, Unsaved
from trainhouse.workers.session.session import Session

STEPS, SAVED_AT, SEED = 8, 4, 3
TOLERANCE = 1e-5
"""Of a loss, relative to that of one rank: float32 sums in another order."""
Found = dict[Any, Any]


def factors(ranks: int, dimensions: int = 4) -> Iterator[tuple[int, ...]]:
    """Every way to write `ranks` as a product of so many sizes."""
    if dimensions == 1:
        yield (ranks,)
        return
    for size in (n for n in range(1, ranks + 1) if ranks % n == 0):
        yield from ((size, *rest) for rest in factors(ranks // size, dimensions - 1))


def layouts_of(ranks: int) -> list[Parallelism]:
    """Every layout of so many ranks, and for pipelines of two or all ranks every schedule."""
    plain = [Parallelism(dp=dp, fsdp=fsdp, tp=tp, pp=pp) for dp, fsdp, tp, pp in factors(ranks)]
    deep = [layout.model_copy(update={"schedule": PipelineSchedule.GPIPE}) for layout in plain if layout.pp in (2, ranks)]
    looped = [layout.model_copy(update={"schedule": PipelineSchedule.INTERLEAVED}) for layout in plain if layout.pp == 2]
    return [*plain, *deep, *looped]


def name_of(layout: Parallelism) -> str:
    """For example dp2-tp2, or fsdp2-pp2-GPipe."""
    sizes = [f"{name}{size}" for name in ("dp", "fsdp", "tp", "pp") if (size := getattr(layout, name)) > 1]
    return "-".join([*sizes, *([layout.schedule] if layout.schedule else [])]) or "one"


def flags_of(layout: Parallelism, ranks: int) -> argparse.Namespace:
    """A model that divides by so many ranks in each dimension, and a batch of 2 × `ranks` over all data ranks."""
    sizes = {"steps": STEPS, "width": 4 * ranks, "layers": max(4, ranks), "heads": ranks, "context": 16, "checkpoint_every": SAVED_AT}
    return gpt.parse([], sizes | {"batch": 2 * ranks // layout.data_size})


def corpus() -> Corpus:
    """A little of the example's text."""
    text = load_corpus()
    return Corpus(text.train[:40_000], text.held_out[:4_000], text.files)


class Trained:
    """One run of the example. `losses`: by step; `state`: hashes of weights and moments as they were restored."""

    def __init__(
        self,
        layout: Parallelism,
        ranks: int,
        store: Any = None,
        job: str = "j",
        epoch: int = 1,
        at_most: int | None = None,
        training: Training | None = None,
    ) -> None:
        self._training = training
        self.alone: Any = None
        """Group of this process by itself, for a layout of one rank beside other processes."""
        self._layout, self._ranks, self._store = layout, ranks, store
        self._job, self._epoch, self._at_most = job, epoch, at_most

    def run(self, text: Corpus) -> dict[int, float]:
        """Trains to the last step, and returns the loss of each step that it took, and behind them the held-out bits a byte."""
        with tempfile.TemporaryDirectory() as folder:
            context = self._context(Path(folder) / "spool.jsonl")
            session = self._session(context)
            flags = flags_of(self._layout, self._ranks)
            model = gpt.train(session, flags, text)
            held_out = windows_at(text.held_out, torch.arange(0, 70 * flags.context, flags.context), flags.context)
            evaluated = gpt.evaluate(model, held_out, session, gpt.share_of(session, flags))
            assert len(model.weights_hash()) == 64
            session.close()
            points = [json.loads(line) for line in context.spool.read_text().splitlines()]  # type: ignore[union-attr]
        return {point[1]: point[3]["loss"] for point in points if point[0] == "m" and "loss" in point[3]} | {STEPS: evaluated}

    def restored(self) -> dict[str, str]:
        """Hashes of what this layout restores, whole tensors, by name. Collective."""
        with tempfile.TemporaryDirectory() as folder:
            session = self._session(self._context(Path(folder) / "spool.jsonl"))
            flags = flags_of(self._layout, self._ranks)
            model = LaidOut(session, ByteGPT(flags.width, flags.layers, flags.heads, flags.context), 0, flags.batch)
            optimizer = torch.optim.AdamW(model.parameters())
            schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
            text = torch.zeros(4096, dtype=torch.uint8)
            loader = Windows(text, flags.context, flags.batch, SEED, session.data_rank, session.data_size)
            assert session.track(model=model.tracked, optimizer=optimizer, schedule=schedule, loader=loader) == SAVED_AT
            found = {}
            for part in model.parts:
                for name, parameter in inner(part).named_parameters():
                    for key, value in {"": parameter, **optimizer.state[parameter]}.items():
                        whole = value.full_tensor() if isinstance(value, DTensor) else value
                        found[f"{name} {key}"] = hashlib.sha256(whole.detach().contiguous().numpy().tobytes()).hexdigest()
            session.close()
        return found

    def session(self) -> Session:
        """A session of this run, without the example."""
        return self._session(self._context(Path(tempfile.mkdtemp()) / "spool.jsonl"))

    def _context(self, spool: Path) -> Context:
        job = {} if self._store is None else {"job_id": self._job, "epoch": self._epoch}
        rank = dist.get_rank() if self._layout.ranks > 1 else 0
        return Context(
            rank=rank,
            world_size=self._layout.ranks,
            seed=SEED,
            spool=spool,
            backend="gloo",
            parallelism=self._layout,
            training=self._training,
            divergence=Divergence(),
            **job,  # type: ignore[arg-type]
        )

    def _session(self, context: Context) -> Session:
        seed_all(context.seed, context.layout.data_rank(context.rank))
        gang = Gang(context)
        saver: Saver = Unsaved()
        if self._store is not None:
            shares = context.layout.data_shares
            settings = CheckpointerSettings(self._job, self._epoch, self._epoch - 1, "spec", SEED, self._at_most, data_shares=shares)
            checkpointer = Checkpointer(settings, self._store, gang.control or self.alone)
            checkpointer.claim()
            saver = CommitSaver(checkpointer, RetentionPolicy(), None)
        return Session(context, gang, open_sink(context), saver)


def losses_alone(ranks: int, training: Training | None = None) -> list[float]:
    """Losses of one rank with the whole batch, and its held-out bits a byte."""
    torch.set_num_threads(1)
    alone = Trained(Parallelism(), ranks, training=training).run(corpus())
    return [alone[step] for step in range(STEPS + 1)]


def run_all(ranks: int, folder: Path, most_s: float = MOST_S) -> list[Found]:
    """Trains in every layout, and restores what each saved half-way in the next one. By rank: what `_in_each_process` returns."""
    return run_gang(partial(_in_each_process, ranks), folder, __name__, ranks, most_s)


def judged(found: list[Found], alone: list[float], ranks: int) -> Iterator[dict[str, object]]:
    """One line for each layout and restore: the largest relative difference of a loss to one rank's, and whether the state was equal."""
    for layout in layouts_of(ranks):
        yield {"layout": name_of(layout), "difference": max(_difference(of_rank[name_of(layout)], alone, 0) for of_rank in found)}
    for saved, other in pairs_of(ranks):
        of_pair = [of_rank[name_of(saved), name_of(other)] for of_rank in found]
        there, here = ({name: digest for states in of_pair for name, digest in states[at].items()} for at in (0, 1))
        difference = max(_difference(losses, alone, SAVED_AT) for _, _, losses in of_pair)
        yield {"layout": name_of(saved), "in": name_of(other), "difference": difference, "tensors": len(here), "same_state": here == there}


def _difference(losses: dict[int, float], alone: list[float], first: int) -> float:
    """Infinite where other steps were taken than those from `first` on."""
    if sorted(losses) != list(range(first, STEPS + 1)):
        return math.inf
    return max(abs(loss - alone[step]) / alone[step] for step, loss in losses.items())


def _in_each_process(ranks: int, store: Any, groups: Groups) -> Found:
    """By the layout's name its losses; by (saved in, restored in) the hashes there and here, and the losses from there on."""
    layouts, text = layouts_of(ranks), corpus()
    found: Found = {}
    for layout in layouts:
        found[name_of(layout)] = Trained(layout, ranks, store, name_of(layout)).run(text)
    for saved, other in pairs_of(ranks):
        job = name_of(saved)
        half_way = min(commit for commit, e in entries_newest_first(store, job) if isinstance(e, Manifest) and e.step == SAVED_AT)
        same = Trained(saved, ranks, store, job, 2, half_way).restored()
        here = Trained(other, ranks, store, job, 3, half_way).restored()
        found[job, name_of(other)] = (same, here, Trained(other, ranks, store, job, 4, half_way).run(text))
    return found


def pairs_of(ranks: int) -> list[tuple[Parallelism, Parallelism]]:
    """Every second layout with one that is far from it in the list: other dimensions, another depth."""
    layouts = layouts_of(ranks)
    return [(layouts[place], layouts[(place * 5 + 3) % len(layouts)]) for place in range(1, len(layouts), 2)]
