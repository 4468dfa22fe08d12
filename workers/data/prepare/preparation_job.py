"""The program of a preparation's job: each shard of the source is one unit of work, and one piece of the output.

Holds: a unit that is there is not done again, also by another attempt or another number of ranks; statistics are those of all units' rows
of the split train, the same on every rank. They are computed anew at each start, before anything is written.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import torch.distributed as dist
import yaml

from trainhouse.checkpointing.artifacts.artifact_store import ArtifactStore
from trainhouse.checkpointing.lease.signed_store import open_store
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.checkpointing.stores.object_store import ObjectStore
from trainhouse.events.model.artifact import ArtifactManifest
from trainhouse.events.model.dataset import DataShard
from trainhouse.events.model.dataset_names import VersionName
from trainhouse.events.model.spec import DataReference
from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.outputs.written_output import Output
from trainhouse.workers.data.prepare.preparation import Preparation
from trainhouse.workers.data.prepare.row_steps import ColumnMoments
from trainhouse.workers.data.prepare.unit_steps import Counts, Encoder, UnitSteps
from trainhouse.workers.data.published_data import open_cache
from trainhouse.workers.data.settings import DataSettings
from trainhouse.workers.data.shard_sources import StoreSource
from trainhouse.workers.data.sharded_dataset import ShardedDataset
from trainhouse.workers.data.shards import Shard
from trainhouse.workers.data.stored_versions import read_manifest
from trainhouse.workers.session import Session

LONGEST_S: Final = 7 * 86_400.0
"""Ranks wait so long for each other's statistics; a rank that dies ends them all before that."""
UNIT_S: Final = 3600.0
TOKENIZER_FILE: Final = "tokenizer.json"
Unit = tuple[str, int, DataShard]


def main(path: Path) -> None:
    """Runs it in a rank of the job."""
    rules = Preparation.parse(yaml.safe_load(path.read_text("utf-8")))
    with Session.start(timeout_s=LONGEST_S) as session:
        data = session.data
        if data is None or data.dataset is None:
            raise InvalidDataError("this job names no version to read; submit it by `trainhouse data prepare FILE`")
        units = UnitReader.of(data, session.project, open_store(StoreSettings()))
        steps = UnitSteps(rules, open_tokenizer(rules, path.parent))
        mine = units.units[session.rank :: session.world_size]
        made_with = dict[str, str]()
        if rules.tokenise is not None:
            made_with = {"tokenizer": keep_tokenizer(session, rules.output, path.parent / rules.tokenise.tokenizer)}
        run(session, units, steps, mine, made_with)


def keep_tokenizer(session: Session, output: str, file: Path) -> str:
    """Stores the tokenizer as an artifact of one file tokenizer.json, by rank 0; returns its hash."""
    content = ArtifactStore.described({TOKENIZER_FILE: file})
    if session.rank == 0:
        with tempfile.TemporaryDirectory() as folder, session.busy("storing the tokenizer", limit_s=UNIT_S):
            shutil.copyfile(file, Path(folder) / TOKENIZER_FILE)
            session.log_artifact(Path(folder) / TOKENIZER_FILE, name=f"{output[:118]}-tokenizer", kind="tokenizer", copy=False).wait()
    return ArtifactManifest.of("tokenizer", content).sha256()


def run(
    session: Session, units: "UnitReader", steps: UnitSteps, mine: list[Unit], made_with: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Statistics, then each unit that is missing. `made_with`: hashes of artifacts that the version names."""
    moments = ColumnMoments(steps.rules.normalise)
    if steps.rules.normalise:
        for unit in mine:
            with session.busy(f"statistics of {name_of(unit)}", limit_s=UNIT_S):
                moments = moments.merged(steps.moments(units.samples(unit), unit[0]))
        moments = _of_all_ranks(session, moments)
    out = session.output(steps.rules.output, shard_bytes=round(steps.rules.shard_mib * 2**20))
    for name, sha256 in made_with.items():
        out.made_with(name, sha256)
    counts, began_s = Counts(), time.monotonic()
    there = out.pieces()
    for unit in mine:
        if name_of(unit) not in there:
            with session.busy(f"preparing {name_of(unit)}", limit_s=UNIT_S):
                counts = counts.added(write_unit(units, steps, unit, moments, out))
    skipped = sum(name_of(unit) in there for unit in mine)
    print(
        f"{counts.written} of {counts.read} rows written, from {len(mine) - skipped} shards, in {time.monotonic() - began_s:.1f} s"
        + (f"; {skipped} shards were there" if skipped else ""),
        flush=True,
    )


def write_unit(units: "UnitReader", steps: UnitSteps, unit: Unit, moments: ColumnMoments, out: Output) -> Counts:
    """Writes one unit; it is there when this returns."""
    with out.piece(name_of(unit)) as piece:
        return steps.write(units.samples(unit), unit[0], moments, piece)


def name_of(unit: Unit) -> str:
    """The name of a unit's piece: pieces stand in the version in the order of the source's shards."""
    _, number, shard = unit
    return f"{number:07d}-{shard.sha256[:16]}"


class UnitReader:
    """The units of a version of `project`, and their samples. `reader`: the project of the job, whose cache is used."""

    def __init__(self, objects: ObjectStore, project: str, version: str, reader: str) -> None:
        sha256 = VersionName.parse(version).sha256
        manifest = read_manifest(objects, project, sha256)
        listed = [(split, shard) for split in sorted(manifest.splits) for shard in manifest.splits[split].shards]
        self.units: list[Unit] = [(split, number, shard) for number, (split, shard) in enumerate(listed)]
        self._source = StoreSource(objects, project, open_cache(DataSettings(), reader), whole=True, manifest_sha256=sha256)
        self._version = version

    @classmethod
    def of(cls, data: DataReference, project: str, objects: ObjectStore) -> "UnitReader":
        """Of the version that a job of `project` names, which may be another project's."""
        assert data.dataset is not None
        return cls(objects, data.owner or project, data.dataset, project)

    def samples(self, unit: Unit) -> Iterator[dict[str, Any]]:
        """Samples of one unit, in their order. Raises DamagedShardError."""
        split, _, shard = unit
        dataset = ShardedDataset([Shard.of(shard)], self._source, f"{self._version}, split {split}", version=self._version, split=split)
        for number in range(len(dataset)):
            yield dataset[number]


def open_tokenizer(rules: Preparation, folder: Path) -> Encoder | None:
    """The tokenizer that the preparation names, if it does. Raises InvalidDataError."""
    if rules.tokenise is None:
        return None
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise InvalidDataError(
            "to tokenise needs the package tokenizers: pip install 'trainhouse[data]' in the job's environment"
        ) from error
    path = folder / rules.tokenise.tokenizer
    try:
        tokenizer: Encoder = Tokenizer.from_file(str(path))
    except Exception as error:  # of Rust: all it raises is Exception
        raise InvalidDataError(f"{path}: no tokenizer in Hugging Face's format: {error}") from error
    return tokenizer


def _of_all_ranks(session: Session, mine: ColumnMoments) -> ColumnMoments:
    if session.world_size == 1:
        return mine
    every: list[Any] = [None] * session.world_size
    with session.busy("statistics of other ranks", limit_s=LONGEST_S):
        dist.all_gather_object(every, mine)
    found = ColumnMoments(mine.columns)
    for moments in every:
        found = found.merged(moments)
    return found
