"""Snapshots of every format are read, and a changed shape without a step is seen."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import orjson
import pytest

from tests.golden_snapshots import MACHINES, committed_shape, folded_state, journal, levels, shape, snapshot
from trainhouse.events.wire.journal import record_head
from trainhouse.scheduler.core.errors import BrokenInvariant
from trainhouse.scheduler.core.protocol.machine import Machine
from trainhouse.scheduler.core.protocol.snapshot_steps import Formats, parse

SAMPLES = [(machine, format_) for machine in MACHINES for format_ in sorted(machine.formats.written_since)]
each_machine = pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name)


@each_machine
def test_the_shape_of_a_snapshot_changes_only_with_its_format(machine: Machine[Any]) -> None:
    """Where this fails: add a format and its steps (`snapshot_steps.py`), then `python -m tests.golden_snapshots` writes its sample."""
    assert parse(machine.dump(folded_state(machine))) == parse(snapshot(machine, machine.formats.newest))


@pytest.mark.parametrize(("machine", "format_"), SAMPLES, ids=lambda v: getattr(v, "name", str(v)))
def test_a_snapshot_of_any_format_is_the_state_that_its_records_fold_to(machine: Machine[Any], format_: int) -> None:
    assert parse(snapshot(machine, format_))["format"] == format_
    assert machine.dump(machine.load(snapshot(machine, format_))) == machine.dump(folded_state(machine))


@pytest.mark.parametrize(("machine", "format_"), SAMPLES, ids=lambda v: getattr(v, "name", str(v)))
def test_each_format_is_written_as_the_version_that_had_it_wrote_it(machine: Machine[Any], format_: int) -> None:
    level = machine.formats.written_since[format_]
    assert parse(machine.formats.lowered(machine.dump(folded_state(machine)), level)) == parse(snapshot(machine, format_))


@each_machine
def test_the_journals_of_the_samples_are_of_one_chain(machine: Machine[Any]) -> None:
    seqs = [record_head(value)["seq"] for value in journal(machine)]
    assert seqs == list(range(1, len(seqs) + 1)) and len(seqs) > 15


@each_machine
def test_what_decisions_hold_changes_only_with_a_level(machine: Machine[Any]) -> None:
    """Where this fails: raise `fold_version`, decide what is new only where `draft.level` allows it, and name new types in `since`.

    Then `python -m tests.golden_snapshots` writes the new level's shape.
    """
    assert levels(machine)[-1] == machine.fold_version
    assert committed_shape(machine, machine.fold_version) == shape(machine)
    for before, level in pairwise(levels(machine)):
        new = committed_shape(machine, level).keys() - committed_shape(machine, before).keys()
        assert level <= machine.lowest_level or all(machine.since.get(kind, 0) > before for kind in new), new


@each_machine
def test_a_machine_is_at_the_level_that_it_is_asked_for(machine: Machine[Any]) -> None:
    assert machine.level == machine.fold_version and machine.at(machine.fold_version) is machine
    assert machine.at(0).level == machine.lowest_level
    with pytest.raises(BrokenInvariant, match="update this program"):
        machine.at(machine.fold_version + 1)


RENAMED = Formats(
    {1: 1, 2: 3, 3: 4},
    {1: lambda raw: {"counts": raw["c"]}, 2: lambda raw: raw | {"ticks": 0}},
    {1: lambda raw: {"c": raw["counts"]}, 2: lambda raw: {k: v for k, v in raw.items() if k != "ticks"}},
)


def test_steps_lead_from_any_format_to_the_newest_and_back() -> None:
    old: dict[str, Any] = {"format": 1, "c": {"j": 2}}
    new = RENAMED.lifted(old)
    assert new == {"format": 3, "counts": {"j": 2}, "ticks": 0} and old == {"format": 1, "c": {"j": 2}}
    assert RENAMED.lifted(new) is new
    data = orjson.dumps(new)
    assert [parse(RENAMED.lowered(data, level))["format"] for level in (1, 2, 3, 4, 9)] == [1, 1, 2, 3, 3]
    assert RENAMED.lowered(data, 1) == orjson.dumps(old, option=orjson.OPT_SORT_KEYS) and RENAMED.lowered(data, 4) is data


@pytest.mark.parametrize("format_", [0, 4, "1", None, True, 1.0])
def test_a_format_that_no_step_leads_from_is_refused(format_: object) -> None:
    with pytest.raises(BrokenInvariant, match="no step leads"):
        RENAMED.lifted({"format": format_})


@pytest.mark.parametrize("data", [b"", b"junk", b"[]", b"3"])
def test_what_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(BrokenInvariant, match="no JSON"):
        parse(data)


def test_a_level_without_a_format_or_a_step_back_is_refused() -> None:
    with pytest.raises(BrokenInvariant, match="the oldest is of 1"):
        RENAMED.lowered(b"{}", 0)
    with pytest.raises(BrokenInvariant, match="finish the update"):
        replace(RENAMED, steps_back={}).lowered(b"{}", 1)
