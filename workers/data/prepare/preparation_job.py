"""The program of a preparation's job, in two passes: units of the source to rows by split and bucket, and those to pieces of the output.

Holds: a unit or piece that is there is not done again, also by another attempt or another number of ranks; one with a torn record is not
there. What a unit adds to statistics is in its record. The second pass begins when the records of all units are there, and follows from
them alone. Where the output has pieces of another plan, as another version of Trainhouse makes them, nothing is written: a version has
either those or these.
"""

import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import torch.distributed as dist
import yaml

from trainhouse.checkpointing.artifacts.artifact_store import ArtifactStore
from trainhouse.checkpointing.lease.signed_store import open_store
from trainhouse.checkpointing.settings import StoreSettings
from trainhouse.events.model.artifact import ArtifactManifest
from trainhouse.workers.data.errors import InvalidDataError
from trainhouse.workers.data.outputs.staged_shard import MOST_SHARD_BYTES
from trainhouse.workers.data.prepare.preparation import Preparation
from trainhouse.workers.data.prepare.row_runs import WorkStore
from trainhouse.workers.data.prepare.shard_plan import PlannedPiece
from trainhouse.workers.data.prepare.source_units import SourceUnit, UnitReader
from trainhouse.workers.data.prepare.tokens import open_tokenizer
from trainhouse.workers.data.prepare.unit_steps import UnitSteps, moments_of, pieces_of
from trainhouse.workers.session import Session

LONGEST_S: Final = 7 * 86_400.0
"""Ranks wait so long for each other's units; a rank that dies ends them all before that."""
UNIT_S: Final = 3600.0
TOKENIZER_FILE: Final = "tokenizer.json"


def main(path: Path) -> None:
    """Runs it in a rank of the job."""
    rules = Preparation.parse(yaml.safe_load(path.read_text("utf-8")))
    with Session.start(timeout_s=LONGEST_S) as session:
        data, work_prefix = session.data, session.output(rules.output, shard_bytes=MOST_SHARD_BYTES).work_prefix()
        if data is None or data.dataset is None or work_prefix is None:
            raise InvalidDataError("this job names no version to read; submit it by `trainhouse data prepare FILE`")
        objects = open_store(StoreSettings())
        steps = UnitSteps(rules, open_tokenizer(rules, path.parent))
        made_with = dict[str, str]()
        if rules.tokenise is not None:
            made_with = {"tokenizer": keep_tokenizer(session, rules.output, path.parent / rules.tokenise.tokenizer)}
        source = UnitReader.of(data, session.project, objects, steps.shard_bytes)
        run(session, source, steps, WorkStore(objects, work_prefix), made_with)


def keep_tokenizer(session: Session, output: str, file: Path) -> str:
    """Stores the tokenizer as an artifact of one file tokenizer.json, by rank 0; returns its hash."""
    content = ArtifactStore.described({TOKENIZER_FILE: file})
    if session.rank == 0:
        with tempfile.TemporaryDirectory() as folder, session.busy("storing the tokenizer", limit_s=UNIT_S):
            shutil.copyfile(file, Path(folder) / TOKENIZER_FILE)
            session.log_artifact(Path(folder) / TOKENIZER_FILE, name=f"{output[:118]}-tokenizer", kind="tokenizer", copy=False).wait()
    return ArtifactManifest.of("tokenizer", content).sha256()


def run(
    session: Session, source: UnitReader, steps: UnitSteps, work: WorkStore, made_with: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Each unit that is missing, then each piece that is missing. `made_with`: hashes of artifacts that the version names. Blocks long.
    Raises InvalidDataError, also where the output has pieces of another plan, DamagedShardError, and what the store raises."""
    out = session.output(steps.rules.output)
    for name, sha256 in made_with.items():
        out.made_with(name, sha256)
    # Pieces first: of this plan there are none before the records of all units.
    with session.busy("looking at the pieces that are there", limit_s=UNIT_S):
        pieces = out.pieces()
    began_s, there = time.monotonic(), work.names()
    if not there.issuperset(unit.name for unit in source.units):
        _refuse(steps.rules.output, pieces)
    mine = source.units[session.rank :: session.world_size]
    with session.busy(f"looking at the records of {len(mine)} units", limit_s=UNIT_S):
        there = frozenset(unit.name for unit in mine if unit.name in there and work.has(unit.name))
    for unit in mine:
        if unit.name not in there:
            with session.busy(f"preparing {unit.name} of {len(source.units)}", limit_s=UNIT_S):
                steps.keep(source.samples(unit), source.source_bytes, work, unit)
    print(_line("units", mine, there, began_s), flush=True)
    if session.world_size > 1:
        with session.busy("units of other ranks", limit_s=LONGEST_S):
            dist.barrier()
    with session.busy(f"reading the records of {len(source.units)} units", limit_s=UNIT_S):
        records = [work.record(unit.name) for unit in source.units]
        began_s, there = time.monotonic(), out.pieces()
        moments, planned = moments_of(records, steps.rules), pieces_of(records, steps)
    _refuse(steps.rules.output, there - {piece.name for piece in planned})
    own = planned[session.rank :: session.world_size]
    for piece in own:
        if piece.name not in there:
            with session.busy(f"writing piece {piece.name} of {len(planned)}", limit_s=UNIT_S), out.piece(piece.name) as writer:
                steps.write(piece, source.units, work, moments, writer)
    print(_line("pieces", own, there, began_s), flush=True)
    if session.rank == 0:
        read, written = sum(record.read for record in records), sum(record.written for record in records)
        print(f"{written} of {read} rows written, in {sum(piece.shards for piece in planned)} shards", flush=True)


def _refuse(output: str, others: frozenset[str]) -> None:
    if others:
        raise InvalidDataError(
            f"output {output} has {len(others)} pieces of another plan, as {min(others)!r}, by an attempt of this job under another "
            "version of Trainhouse: their rows would come twice. Submit the preparation again, as a new job"
        )


def _line(kind: str, mine: Sequence[SourceUnit | PlannedPiece], there: frozenset[str], began_s: float) -> str:
    known = sum(each.name in there for each in mine)
    return f"{len(mine) - known} {kind} done in {time.monotonic() - began_s:.1f} s" + (f"; {known} {kind} were there" if known else "")
