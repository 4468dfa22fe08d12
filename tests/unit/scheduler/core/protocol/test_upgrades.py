"""Whether an update may be finished, and what keeps it back."""

from typing import Any

import pytest
from typer.testing import CliRunner

from trainhouse.cli.main import build
from trainhouse.cli.stack import upgrade
from trainhouse.events.model.upgrade import GONE_AFTER_MS, LevelRaised, ProgramRunning, UpgradeFinished
from trainhouse.events.wire.running_programs import Announced, finished_level, running
from trainhouse.events.wire.topics import DECISIONS, DIRECTORY, REGISTRY, TUNING
from trainhouse.scheduler.core.intake import directory
from trainhouse.scheduler.core.intake.directory import DirectoryMachine
from trainhouse.scheduler.core.protocol.levels import KNOWN_LEVELS
from trainhouse.scheduler.core.registry import registry_machine
from trainhouse.scheduler.core.registry.registry_machine import RegistryMachine
from trainhouse.scheduler.core.schedule import ScheduleMachine
from trainhouse.scheduler.core.state import status
from trainhouse.scheduler.core.studies.study_machine import TunerMachine
from trainhouse.scheduler.upgrades import JournalUpgrade, PartitionLevel

NOW_MS = 1_800_000_000_000


def program(name: str, level: int, journal: str = DECISIONS) -> ProgramRunning:
    told = {"journal": journal, "process": name, "decide_version": 9, "fold_version": level, "lowest_level": 7, "at_ms": NOW_MS}
    return ProgramRunning.model_validate(told)


def journal(levels: list[int], programs: list[ProgramRunning], owner: str = "a", age_ms: int = 0) -> JournalUpgrade:
    partitions = [PartitionLevel(n, level, owner if level else "", NOW_MS - age_ms) for n, level in enumerate(levels)]
    return JournalUpgrade(DECISIONS, 8, partitions, programs, NOW_MS)


@pytest.mark.parametrize(
    ("levels", "running_at", "can", "says"),
    [
        ([7, 7], [8, 8], True, "reads and writes level 8"),
        ([7, 7], [7, 8], False, "b runs level 7"),
        ([7, 7], [7], False, "nothing is to be finished"),
        ([8, 8], [8], False, "nothing is to be finished"),
        ([7, 8], [8], True, "level 8"),
        ([7, 9], [8, 9], False, "b runs level 8"),
        ([7, 0], [8], True, "level 8"),
        ([0, 0], [8], False, "no record yet"),
        ([7, 7], [9, 10], True, "reads and writes level 9"),
    ],
)
def test_an_update_is_finished_at_what_everything_that_runs_reads(levels: list[int], running_at: list[int], can: bool, says: str) -> None:
    names = ["b", "a", "c"] if len(running_at) > 1 else ["a"]
    found = journal(levels, [program(name, level) for name, level in zip(names, running_at, strict=False)])
    assert found.can_finish == can and says in found.state()


def test_a_process_that_announces_nothing_keeps_an_update_back_while_it_writes() -> None:
    found = journal([7, 7], [program("new", 8)], owner="of before")
    assert found.silent == ["of before"] and not found.can_finish and "of before does not announce" in found.state()
    assert journal([7, 7], [program("new", 8)], owner="of before", age_ms=GONE_AFTER_MS).can_finish
    assert journal([7, 7], []).silent == ["a"], "where nothing announces itself, who wrote lately does not either"
    assert journal([7, 7], [], age_ms=GONE_AFTER_MS).can_finish, "all is stopped: this program's level"


def announced(name: str, level: int, appended_ms: int) -> Announced:
    from trainhouse.events import envelope_of
    from trainhouse.events.wire.codec import encode

    event = program(name, level)
    return Announced(event.key, encode(envelope_of(event, id=f"{name}{level}", source="test", now_ms=0)), appended_ms)


def test_who_fell_silent_or_said_farewell_runs_no_more() -> None:
    records = [
        announced("a", 7, NOW_MS - 10),
        announced("b", 7, NOW_MS - GONE_AFTER_MS),
        announced("c", 7, NOW_MS),
        announced("a", 8, NOW_MS),
    ]
    records += [Announced(program("c", 7).key, None, NOW_MS), Announced(b"x", b"junk", NOW_MS)]
    assert [(p.process, p.fold_version) for p in running(records, NOW_MS)] == [("a", 8)]


def test_of_finished_updates_the_highest_that_a_program_can_write_counts() -> None:
    from trainhouse.events import envelope_of
    from trainhouse.events.wire.codec import encode

    def told(level: int, at_ms: int, of: str = DECISIONS) -> bytes:
        event = UpgradeFinished(journal=of, level=level, reason="r", user="u", at_ms=at_ms)
        return encode(envelope_of(event, id=f"{level}", source="test", now_ms=0))

    values = [told(8, 5), told(9, 6), told(8, 4), told(10, 1, "another"), b"junk", None]
    found = [finished_level(values, DECISIONS, most) for most in (7, 8, 9, 10)]
    assert [(f.level, f.at_ms) if f else None for f in found] == [None, (8, 4), (9, 6), (9, 6)]
    assert LevelRaised(level=8, reason="r", user="u", asked_at_ms=1).level == 8


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command reads, and what it sent."""
    seen: dict[str, Any] = {"found": [journal([7, 7], [program("a", 8)])], "sent": []}

    def send(kafka: object, name: str, level: int, reason: str) -> None:
        seen["sent"].append((name, level, reason))
        seen["found"] = [journal([level, level], [program("a", 8)])]

    monkeypatch.setenv("TRAINHOUSE_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setattr(upgrade, "_journals", lambda: (None, {}))
    monkeypatch.setattr(upgrade, "_read", lambda kafka, machines: seen["found"])
    monkeypatch.setattr(upgrade, "_send", send)
    return seen


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(build(), ["upgrade", *arguments])
    return (done.exit_code, done.output + (str(done.exception) if done.exception else ""))


def test_finish_writes_once_and_waits_for_every_partition(stage: dict[str, Any]) -> None:
    code, out = run("status")
    assert code == 0 and "level 7 in 2 partitions" in out and "trainhouse upgrade finish" in out
    code, out = run("finish", "--reason", "ran for a week")
    assert code == 0 and "finished at level 8" in out and stage["sent"] == [(DECISIONS, 8, "ran for a week")]
    code, out = run("finish", "--reason", "again")
    assert code == 0 and "nothing is to be finished" in out and len(stage["sent"]) == 1


def test_finish_refuses_while_a_program_of_before_runs(stage: dict[str, Any]) -> None:
    stage["found"] = [journal([7, 7], [program("a", 8), program("old", 7)])]
    code, out = run("finish", "--reason", "x")
    assert code != 0 and "old runs level 7" in out and "nothing was written" in out and not stage["sent"]
    assert run("finish", "--reason", " ")[0] != 0
    code, out = run("status", "--json")
    assert code == 0 and '"can_finish":false' in out and '"process":"old"' in out


def test_finish_says_which_partitions_are_not_there_in_time(stage: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade, "WAIT_S", 0.0)
    monkeypatch.setattr(upgrade, "_send", lambda *told: stage["sent"].append(told))
    code, out = run("finish", "--reason", "x")
    assert code != 0 and f"{DECISIONS}-0, {DECISIONS}-1" in out and stage["sent"]


def test_each_journal_has_the_levels_of_its_machine_and_what_came_last_is_decided_at_them() -> None:
    machines: dict[str, Any] = {DIRECTORY: DirectoryMachine, DECISIONS: ScheduleMachine, REGISTRY: RegistryMachine, TUNING: TunerMachine}
    levels = [(journal, (each.decide_version, each.fold_version, each.lowest_level)) for journal, each in machines.items()]
    assert levels == list(KNOWN_LEVELS.items()), "what is shown is in the same order with and without machines"
    newest = {DIRECTORY: directory.REGISTERS_SINCE, DECISIONS: status.REGISTERS_SINCE, REGISTRY: registry_machine.EVALUATES_SINCE}
    newest[TUNING] = 1
    assert newest == {journal: levels.fold for journal, levels in KNOWN_LEVELS.items()}
