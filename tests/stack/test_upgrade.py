"""What `trainhouse upgrade` says of a stack that runs one version."""

from __future__ import annotations

import json

import pytest

from tests.support.stack.live_stack import LiveStack
from tests.support.waiting import until
from trainhouse.cli.shared.exit_codes import Exit
from trainhouse.events.wire.topics import DECISIONS, DIRECTORY, REGISTRY, TUNING
from trainhouse.scheduler.core.intake.directory import DirectoryMachine
from trainhouse.scheduler.core.registry.registry_machine import RegistryMachine
from trainhouse.scheduler.core.schedule import ScheduleMachine
from trainhouse.scheduler.core.studies.study_machine import TunerMachine

pytestmark = pytest.mark.stack
LEVELS = {
    DECISIONS: ScheduleMachine.fold_version,
    DIRECTORY: DirectoryMachine.fold_version,
    REGISTRY: RegistryMachine.fold_version,
    TUNING: TunerMachine.fold_version,
}


def test_the_processes_of_a_stack_announce_themselves_and_nothing_is_to_be_finished(stack: LiveStack) -> None:
    def rows() -> list[dict[str, object]]:
        return [json.loads(line) for line in stack.ok("upgrade", "status", "--json").splitlines()]

    until(lambda: {r["journal"] for r in rows() if r["kind"] == "program"} == set(LEVELS), rows)
    found = rows()
    assert {r["journal"]: r["fold_version"] for r in found if r["kind"] == "program"} == LEVELS
    journals = {str(r["journal"]): r for r in found if r["kind"] == "journal"}
    for journal, level in LEVELS.items():
        assert journals[journal]["unannounced"] == [] and journals[journal]["highest"] in (0, level)
        assert journals[journal]["can_finish"] is False
    done = stack.run("upgrade", "finish", "--reason", "a try")
    assert done.code == Exit.OK and "finished at level" not in done.out, (done.out, done.err)
    assert "nothing is to be finished" in stack.ok("upgrade", "status")
