"""An attempt has one number, from 0, wherever users meet it: statuses, commands, folders, variables, pages."""

from pathlib import Path

import pytest

from tests.support.core_world import Driver, admitted, exited, going, gone, hung, registered, running
from tests.unit.workers.agent.test_agent_parts import environment, gang
from trainhouse.events import GangAllocated
from trainhouse.events.model.ids import Epoch
from trainhouse.workers.agent.launch.attempt_dirs import found_attempts, record_allocation
from trainhouse.workers.launcher import AttemptPaths


def test_the_epoch_of_an_attempt_is_one_more_than_its_number_whatever_ended_those_before() -> None:
    d = Driver()
    d.feed(registered("a"))
    first = running(d, "j", ranks=2, limits={"restarts": 9})
    d.feed(exited(first, 0, 3), *gone(first))
    second = going(d, "j")
    d.feed(hung(second), *gone(second))
    d.tick(60_000)
    going(d, "j")
    d.feed(admitted("other", priority=1, ranks=2))
    gangs = d.all(GangAllocated, job_id="j")
    assert [int(g.attempt) for g in gangs] == [0, 1, 2]
    assert all(g.epoch.attempt == g.attempt for g in d.all(GangAllocated))
    assert d.status("j").attempt == gangs[-1].attempt


def test_its_folder_is_named_by_that_number(tmp_path: Path) -> None:
    paths = AttemptPaths.of(tmp_path, "j", 1)
    assert paths.folder == tmp_path / "attempts" / "j" / "attempt-0" and paths.epoch == 1
    for epoch in (11, 2):
        record_allocation(AttemptPaths.of(tmp_path, "j", epoch), gang().model_copy(update={"epoch": Epoch(epoch)}), "b")
    assert [int(f.allocation.epoch) for f in found_attempts(tmp_path)] == [2, 11]


def test_a_folder_of_an_earlier_version_is_named_by_the_epoch_and_still_used(tmp_path: Path) -> None:
    old = tmp_path / "attempts" / "j" / "3"
    old.mkdir(parents=True)
    paths = AttemptPaths.of(tmp_path, "j", 3)
    assert paths.folder == old and paths.epoch == 3
    record_allocation(paths, gang(), "b")
    record_allocation(AttemptPaths.of(tmp_path, "j", 4), gang().model_copy(update={"epoch": Epoch(4)}), "b")
    assert [f.paths.folder.name for f in found_attempts(tmp_path)] == ["3", "attempt-3"]


def test_torch_is_told_the_same_number() -> None:
    env = environment(gang(), 0)
    assert env["TORCHELASTIC_RESTART_COUNT"] == env["TRAINHOUSE_ATTEMPT"] == str(int(gang().attempt))


@pytest.mark.parametrize("dashboard", ["job", "failures"])
def test_dashboards_show_it_and_not_the_fence(dashboard: str) -> None:
    import trainhouse.deploy.grafana as grafana

    text = (Path(grafana.__file__).parent / "definitions" / f"{dashboard}.yaml").read_text()
    assert "SELECT epoch" not in text and "job_id, epoch" not in text and "toString(epoch)" not in text
