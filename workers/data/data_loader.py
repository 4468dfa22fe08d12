"""Loader of batches over any map-style dataset, by torch's DataLoader; resumable at any number of ranks and worker processes.

Holds: its state counts the samples of the batches that `next` returned, for the whole gang; what workers have read ahead is not used yet.
Worker processes live as long as the loader. No generator of the program is drawn from.
Never: holds more than the batches read ahead, `prefetch` for each worker.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch.utils.data import DataLoader, Dataset

from trainhouse.events.model.bad_shard import MOST_EVIDENCE_CHARS, ShardFault
from trainhouse.events.model.spec import DEFAULT_MAX_BAD
from trainhouse.workers.data.batches import Batches, Cursor, Last, Share
from trainhouse.workers.data.device_copies import CudaSideStream, DeviceCopies
from trainhouse.workers.data.errors import DamagedShardError, InvalidDataError
from trainhouse.workers.data.order import Blocks, BlockShuffled, Mixed, OfDataset, Order, Sequential, ShardShuffled, Shuffled
from trainhouse.workers.data.sharded_dataset import KEY, BadSample, ShardedDataset
from trainhouse.workers.data.step_reads import StepRuns

Wait = Callable[[], contextlib.AbstractContextManager[None]]
Function = Callable[[Any], Any]
_GANG = {"scope": "gang"}


@dataclass(frozen=True)
class Excess:
    """More places without a sample than are allowed up to a point of the data. `last`: what was wrong with this rank's last one."""

    bad: int
    allowed: int
    samples: int
    last: str


class BadSampleReports(Protocol):
    """Receiver of what a loader finds of bad samples."""

    def found(self, bad: BadSample) -> None:
        """Takes one."""
        ...

    def exceeded(self, excess: Excess) -> None:
        """Takes that there are more than are allowed."""
        ...


class MapStyle(Protocol):
    """A dataset with a length and samples by index: torch's, Hugging Face's, a list."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any, /) -> Any: ...


@dataclass(frozen=True)
class Reading:
    """Worker processes that read samples, and functions that they go through. `max_bad`: places of each pass over a published dataset that
    may stay empty, as a share of all; at least one, unless it is 0. `accepted_bad`: so many more, since a person accepted them. `job_id`:
    whose count it is; empty outside of a job."""

    workers: int = 0
    decode: Function | None = None
    collate: Function | None = None
    pinned: bool = False
    max_bad: float = DEFAULT_MAX_BAD
    accepted_bad: int = 0
    job_id: str = ""

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise InvalidDataError(f"workers={self.workers}: give the number of worker processes, 0 to read in this one")
        if not 0 <= self.max_bad <= 1:
            raise InvalidDataError(f"max_bad={self.max_bad}: give a share of the samples, from 0 to 1")


class Mixture:
    """Several map-style datasets mixed by whole weights, exactly: `Mixture([(books, 7), (code, 3)])` gives 7 of `books` and 3 of `code` in
    every 10 samples. Each goes through passes of its own. It is a dataset as well: theirs, one after another."""

    def __init__(self, parts: Sequence[tuple[MapStyle, int]]) -> None:
        if not parts:
            raise InvalidDataError("Mixture([]): give at least one dataset with its weight, as Mixture([(dataset, 1)])")
        if any(isinstance(dataset, Mixture) for dataset, _ in parts):
            raise InvalidDataError("a mixture of mixtures: give all datasets in one Mixture")
        self.datasets = tuple(dataset for dataset, _ in parts)
        self.weights = tuple(weight for _, weight in parts)
        self._all: torch.utils.data.ConcatDataset[Any] = torch.utils.data.ConcatDataset([cast("Dataset[Any]", d) for d in self.datasets])

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, index: int) -> Any:
        return self._all[index]


class Loader:
    """An endless iterator over this rank's share of each batch. `session.loader` makes it.

    Of a published dataset, a sample that cannot be read or decoded leaves its place in the batch empty: `weight` is the share of this
    rank's places of the last batch that have a sample, `bad` the number of those that had none, since the loader was made. A batch of
    weight 0 has one sample of another place, so that the program can go through its step, and its loss times `weight` is 0.
    `bad_of_gang` counts those of all ranks and attempts as far as the ranks have exchanged them, and `bad_here` this rank's since then.
    """

    gathered = False
    """Whether the ranks exchange their counts, and so end the job together; else a rank that has too many raises DamagedShardError."""

    def __init__(self, dataset: MapStyle, order: Order, batches: Batches, reading: Reading, wait: Wait = contextlib.nullcontext) -> None:
        self._order, self._batches, self._wait = order, batches, wait
        self._cursor = Cursor()
        self._sampler = _FromCursor(batches)
        self._read: Iterator[Any] | None = None
        self._generator = torch.Generator()  # else workers' seeds are drawn from the program's
        self.copies: DeviceCopies | None = None
        self.weight, self.bad = 1.0, 0
        self.bad_of_gang = self.bad_here = 0
        self.reports: BadSampleReports | None = None
        self.reads: StepRuns | None = None
        """Receiver of the positions that each batch used, of all ranks together."""
        self._last_bad = ""
        self._samples, self._accepted_bad, self._job_id = len(dataset), reading.accepted_bad, reading.job_id
        self._most_bad = max(1.0, reading.max_bad * self._samples) if reading.max_bad else 0.0
        self._published = _is_published(dataset)
        self._torch: DataLoader[Any] = DataLoader(
            _Samples(dataset, reading.decode, self._published),
            batch_sampler=self._sampler,
            num_workers=reading.workers,
            persistent_workers=reading.workers > 0,
            collate_fn=_WithBad(reading.collate) if self._published else reading.collate,
            pin_memory=reading.pinned,
            generator=self._generator,
        )

    def to(self, device: torch.device) -> "Loader":
        """Lets the tensors of each batch come on this device from now on, and returns this loader.

        On CUDA they are copied from pinned memory on a stream of their own, beside the work that the device has already; what training
        gives it afterwards waits for them there, not on the host. Of a host's device nothing is copied.
        """
        self.copies = DeviceCopies(CudaSideStream(device)) if device.type == "cuda" else None
        return self

    def __iter__(self) -> "Loader":
        return self

    def __next__(self) -> Any:
        try:
            with self._wait():
                if self._read is None:
                    self._read = self._begin()
                batch = next(self._read)
                if self._published:
                    batch = self._weighed(*batch)
                if self.copies is not None:
                    batch = self.copies.of(batch)
        except BaseException as error:
            self._read = None  # the next call reads from the cursor again: this batch was not returned
            if isinstance(error, StopIteration):
                raise RuntimeError(
                    "the dataset, decode or collate raised StopIteration, which would end the training loop as if all went well: "
                    "raise another error"
                ) from error
            raise
        if self.reads is not None:
            for span in self._batches.spans(self._cursor):
                self.reads.used(span)
        self._cursor = self._batches.after(self._cursor)
        return batch

    def _weighed(self, batch: Any, bad: list[BadSample], has_samples: bool) -> Any:
        """The batch, its empty places counted. Raises DamagedShardError where none of its samples is good, nor any that was tried instead;
        and where too many are bad by now, unless the ranks decide about that together."""
        if not bad:
            self.weight = 1.0
            return batch
        places = self._batches.of_rank
        if self.reports is not None:
            for each in bad:
                self.reports.found(each)
        count, last = self.bad_of_gang + self.bad_here + len(bad), bad[-1].reason
        excess = self._excess(self._batches.after(self._cursor), count, last)
        if excess is not None and not (self.gathered and has_samples):
            self._report(excess)
            raise DamagedShardError(
                f"{excess.bad} samples could not be read or decoded, the last one because: {last}; these are more than "
                f"max_bad allows, {excess.allowed} of {self._samples}: publish the version again, or raise max_bad"
            )
        if not has_samples:
            raise DamagedShardError(
                f"none of the {places} samples of this rank's batch can be read or decoded, nor any of those that were tried in their "
                f"place, the last one because: {last}; mend decode, or publish the version again"
            )
        self.bad += len(bad)
        self.bad_here += len(bad)
        self._last_bad = last
        self.weight = 1 - len(bad) / places
        return batch

    def _report(self, excess: Excess) -> None:
        if self.reports is not None:
            self.reports.exceeded(excess)

    def excess(self) -> Excess | None:
        """The places without a sample, if they are more than are allowed up to here."""
        return self._excess(self._cursor, self.bad_of_gang + self.bad_here, self._last_bad)

    def _excess(self, cursor: Cursor, count: int, last: str) -> Excess | None:
        used = cursor.data_pass * self._order.samples + cursor.position
        passes = max(1, -(-used // self._samples))
        allowed = self._accepted_bad + int(self._most_bad * passes)
        return Excess(count, allowed, self._samples, last) if count > allowed else None

    def exchanged(self, total: int) -> None:
        """All ranks have counted `total` places without a sample together, this rank's included."""
        self.bad_of_gang, self.bad_here = total, 0

    def _begin(self) -> Iterator[Any]:
        """Reads from the cursor on. Workers' generators follow from the order, the share and the cursor."""
        at = [self._order.identity(), self._batches.rank, self._cursor.data_pass, self._cursor.position]
        self._generator.manual_seed(int.from_bytes(hashlib.sha256(json.dumps(at).encode()).digest()[:7]))
        self._sampler.cursor = self._cursor
        return iter(self._torch)

    @property
    def order(self) -> Order:
        """The order that its positions count in."""
        return self._order

    @property
    def data_pass(self) -> int | None:
        """Number of whole passes over the dataset that the batches up to now have used; None of a mixture: each dataset has its own."""
        return None if isinstance(self._order, Mixed) else self._batches.begin(self._cursor).data_pass

    def skip(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Leaves out positions, counted through the passes: ranges of a first one and the one after the last. All ranks must leave out the
        same; the state has them."""
        self._batches.skips = self._batches.skips.and_also(ranges)
        self._read = None

    def state_dict(self) -> dict[str, Any]:
        """Position that all ranks together have used, what is left out, and places without a sample as far as exchanged."""
        state = _GANG | self._order.identity() | {"data_pass": self._cursor.data_pass, "position": self._cursor.position}
        pass_begin = self._cursor.data_pass * self._order.samples
        skipped = [[begin, end] for begin, end in self._batches.skips.ranges if end > pass_begin]  # a padded batch looks back in its pass
        if skipped:
            state |= {"skipped": skipped}
        if not self.bad_of_gang:
            return state
        return state | {"bad": self.bad_of_gang} | ({"bad_of": self._job_id} if self._job_id else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from there, and leaves out what it left out; the count of another job's bad samples ends.

        Raises InvalidDataError when the order is another one.
        """
        now = self._order.identity()
        for name in (*now, "mixture", "dataset"):  # which other orders do not have
            if state.get(name) != now.get(name):
                raise InvalidDataError(_differs(name, state.get(name), now.get(name)))
        self._cursor = Cursor(int(state["data_pass"]), int(state["position"]))
        self.skip((int(begin), int(end)) for begin, end in state.get("skipped", ()))
        counted = state.get("bad_of", self._job_id) == self._job_id  # states of before had no id
        self.bad_of_gang, self.bad_here = int(state.get("bad", 0)) if counted else 0, 0
        self._read = None  # what was read ahead is not of this position


def make_loader(
    dataset: MapStyle, share: Share, seed: int, shuffle: bool | Blocks, last: Last, reading: Reading, wait: Wait = contextlib.nullcontext
) -> Loader:
    """A loader of `share` of each batch of `dataset`. Raises InvalidDataError."""
    if not isinstance(shuffle, bool | Blocks):
        raise InvalidDataError(f"shuffle={shuffle!r}: give True, False or Blocks(samples=…, window=…)")
    order = _order(dataset, seed, shuffle)
    if isinstance(order, Mixed) and last is not None:
        raise InvalidDataError(
            f"last={last!r}: a mixture has no last batch, since each of its datasets has passes of its own; leave it out"
        )
    return Loader(dataset, order, Batches(order, share, last), reading, wait)


def _order(dataset: MapStyle, seed: int, shuffle: bool | Blocks) -> Order:
    if isinstance(dataset, Mixture):
        parts = [_order(part, seed * 1_000_003 + number, shuffle) for number, part in enumerate(dataset.datasets, 1)]
        return Mixed(parts, dataset.weights, seed)
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise InvalidDataError(
            f"{type(dataset).__name__} is no map-style dataset: an exact order needs a length and samples by index (__len__, __getitem__)"
        )
    if isinstance(dataset, ShardedDataset):
        blocks = shuffle if isinstance(shuffle, Blocks) else Blocks()
        return OfDataset(ShardShuffled(dataset.sizes, seed, blocks) if shuffle else Sequential(len(dataset)), dataset.identity)
    if isinstance(shuffle, Blocks):
        return BlockShuffled(len(dataset), seed, shuffle)
    return Shuffled(len(dataset), seed) if shuffle else Sequential(len(dataset))


def _differs(name: str, saved: object, now: object) -> str:
    if name == "samples":
        return (
            f"the checkpoint's loader was saved over {saved} samples, and the dataset has {now}: its order is another one; "
            "give the dataset that it had then, or begin a new job"
        )
    if name in ("dataset", "shards"):
        return (
            f"the checkpoint's loader was saved over the contents {saved}, and the dataset's are {now}: it is another version; "
            "give the version that it had then, or begin a new job"
        )
    return (
        f"the checkpoint's loader was saved with {name} {saved!r}, and is made with {now!r} now: its order is another one; "
        f"put {saved!r} back, or begin a new job"
    )


class _FromCursor:
    """Batch sampler: indices of each batch from the cursor on. Does not know its loader: in a cycle of references that would end its worker
    processes by garbage collection alone, which waits 5 s for each."""

    def __init__(self, batches: Batches) -> None:
        self.cursor = Cursor()
        self._batches = batches

    def __iter__(self) -> Iterator[list[int]]:
        return self._batches.indices(self.cursor)


@dataclass(frozen=True)
class _StandIn:
    """A sample of another place, for a batch that has none of its own."""

    sample: Any


class _WithBad:
    """Collates the samples that are there, or the one that stands in for them; gives the bad ones beside them, and whether any is there."""

    def __init__(self, collate: Function | None) -> None:
        self._collate = collate or torch.utils.data.default_collate

    def __call__(self, samples: list[Any]) -> tuple[Any, list[BadSample], bool]:
        bad = [sample for sample in samples if isinstance(sample, BadSample)]
        if not bad:
            return self._collate(samples), bad, True
        there = [sample.sample if isinstance(sample, _StandIn) else sample for sample in samples if not isinstance(sample, BadSample)]
        return (self._collate(there) if there else None), bad, bool(there)


class _Samples(Dataset[Any]):
    """The dataset with its samples decoded. What fails names the sample; of a published dataset, it leaves its place empty."""

    def __init__(self, dataset: MapStyle, decode: Function | None, published: bool) -> None:
        self._dataset, self._decode, self._published = dataset, decode, published

    def __getitems__(self, indices: list[int]) -> list[Any]:
        together = getattr(self._dataset, "__getitems__", None)
        if callable(together):
            samples = list(together(indices))
            if len(samples) != len(indices):
                raise InvalidDataError(
                    f"{type(self._dataset).__name__}.__getitems__ gave {len(samples)} samples for {len(indices)} indices"
                )
        else:
            samples = [self._sample(index) for index in indices]
        decoded = [self._decoded(index, sample) for index, sample in zip(indices, samples, strict=True)]
        if self._published and all(isinstance(sample, BadSample) for sample in decoded):
            decoded += self._stand_in(indices[-1])
        return decoded

    def _stand_in(self, index: int) -> list[_StandIn]:
        """A good sample, or none; found from the index alone. Tries ones farther and farther off: neighbours may be of one bad shard."""
        count = len(self._dataset)
        for power in range(count.bit_length()):
            try:
                sample = self._dataset[(index + 2**power) % count]
            except DamagedShardError:
                continue
            with contextlib.suppress(Exception):  # the bad samples of the batch say why
                return [_StandIn(sample if self._decode is None else self._decode(sample))]
        return []

    def _sample(self, index: int) -> Any:
        try:
            return self._dataset[index]
        except DamagedShardError as error:
            part = _part_of(self._dataset, index)
            if part is None:
                raise
            return BadSample.reported(index, error, part[0])
        except Exception as error:
            error.add_note(f"reading sample {index} of the dataset")
            raise

    def _decoded(self, index: int, sample: Any) -> Any:
        if self._decode is None or isinstance(sample, BadSample):
            return sample
        try:
            return self._decode(sample)
        except Exception as error:
            part = _part_of(self._dataset, index)
            if part is None or isinstance(error, StopIteration):
                error.add_note(f"decoding sample {index} of the dataset")
                raise
            return self._decoded_again(index, *part)

    def _decoded_again(self, index: int, part: ShardedDataset, of_part: int) -> Any:
        """The sample, read and decoded once more; else its empty place."""
        try:
            sample = part[of_part]
        except DamagedShardError as error:
            return BadSample.reported(index, error, part)
        assert self._decode is not None
        try:
            return self._decode(sample)
        except Exception as error:
            # Not its text, which may quote the sample; and no shard: its bytes are as published.
            bad = DamagedShardError(
                f"decode raised {type(error).__name__}", ShardFault.UNDECODABLE, sample=str(sample[KEY])[:MOST_EVIDENCE_CHARS]
            )
            return BadSample.reported(index, bad, part, f": {error}")


def _part_of(dataset: MapStyle, index: int) -> tuple[ShardedDataset, int] | None:
    """The published dataset that a sample is of, and its number there; None: it is of none."""
    if isinstance(dataset, Mixture):
        for part in dataset.datasets:
            if index < len(part):
                return _part_of(part, index)
            index -= len(part)
    return (dataset, index) if isinstance(dataset, ShardedDataset) else None


def _is_published(dataset: MapStyle) -> bool:
    return isinstance(dataset, ShardedDataset) or (isinstance(dataset, Mixture) and any(map(_is_published, dataset.datasets)))
