"""Lists of jobs over the real engine: as the view `jobs` has them, page by page, with each filter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.gateway_world import NOW_MS, World, world_in
from trainhouse.events import JobId
from trainhouse.events.model.tracking import TrackedRunBegun, TrackedRunChanged
from trainhouse.events.wire import topics
from trainhouse.gateway.queries.job_sources import COLUMNS
from trainhouse.gateway.routes.jobs import Job


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_in(tmp_path_factory.mktemp("jobs") / "clickhouse") as made:
        for n in range(12):
            at_ms = NOW_MS + n // 3  # some at the same moment: their ids tell them apart
            project = ("vision", "speech")[n % 2]
            if n % 3 == 0:
                run = {"experiment_id": "7", "experiment": "e", "project": project, "name": f"n{n}", "user": "ana", "started_at_ms": at_ms}
                made.tables.put(topics.TRACKING, [TrackedRunBegun.model_validate(run | {"job_id": f"x-{n}"})], NOW_MS)
            else:
                made.submit(f"x-{n}", project, at_ms, team="blue" if n % 2 else "red")
        gone = TrackedRunChanged(job_id=JobId("x-3"), deleted=True, at_ms=NOW_MS)
        made.tables.put(topics.TRACKING, [gone], NOW_MS)
        yield made


def test_the_columns_are_a_jobs() -> None:
    assert tuple(Job.model_fields) == COLUMNS


@pytest.mark.parametrize("limit", [1, 3, 5, 100])
@pytest.mark.parametrize(
    ("filters", "condition"),
    [
        ({}, "1"),
        ({"source": "tracked"}, "source = 'tracked'"),
        ({"source": "scheduled"}, "source = 'scheduled'"),
        ({"source": "none"}, "0"),
        ({"team": "blue"}, "team = 'blue'"),
        ({"team": ""}, "team = ''"),
        ({"pool": "default"}, "pool = 'default'"),
        ({"pool": ""}, "pool = ''"),
        ({"project": "speech"}, "project = 'speech'"),
        ({"state": "RUNNING"}, "state = 'RUNNING'"),
        ({"user": "ana", "name": "n6"}, "user = 'ana' AND name = 'n6'"),
    ],
)
def test_a_list_is_as_the_view_has_it(world: World, filters: dict[str, str], condition: str, limit: int) -> None:
    order = "coalesce(submitted_at, updated_at) DESC, job_id DESC"
    wanted = seen(world, f"SELECT {', '.join(COLUMNS)} FROM jobs WHERE job_id != '' AND {condition} ORDER BY {order}")
    assert listed(world, filters, limit, world.admin()) == wanted


@pytest.mark.parametrize("job_id", ["x-0", "x-1", "x-3", "nowhere"])
def test_a_job_is_as_the_view_has_it(world: World, job_id: str) -> None:
    wanted = seen(world, f"SELECT {', '.join(COLUMNS)} FROM jobs WHERE job_id = '{job_id}'")
    answer = world.client.get(f"/v1/training-jobs/{job_id}", headers=world.admin())
    assert ([answer.json()] if answer.status_code == 200 else []) == wanted


def test_other_projects_are_as_if_they_were_not_there(world: World) -> None:
    items = listed(world, {}, 2, world.token())
    assert {item["project"] for item in items} == {"vision"} and len(items) == 6
    assert world.client.get("/v1/training-jobs/x-9", headers=world.token()).status_code == 404


def listed(world: World, filters: dict[str, str], limit: int, who: dict[str, str]) -> list[dict[str, Any]]:
    """Every page after the other."""
    items: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        more = {"cursor": cursor} if cursor else {}
        answer = world.client.get("/v1/training-jobs", params=filters | {"limit": limit} | more, headers=who)
        assert answer.status_code == 200, answer.text
        items += answer.json()["items"]
        cursor = answer.json()["next_cursor"]
    return items


def seen(world: World, sql: str) -> list[dict[str, Any]]:
    return world.client.portal.call(world.gateway.reader.rows, sql)  # type: ignore[union-attr]
