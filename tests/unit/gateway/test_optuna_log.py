"""Logs of Optuna's storages, over stores in memory: order and count of appends by several gateways, whatever is lost between; trials."""

from __future__ import annotations

import asyncio
import json
import math
import random
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.storages.journal import BaseJournalBackend
from optuna.storages.journal._storage import JournalStorageReplayResult
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.support.gateway_world import ListBus
from tests.support.profiles import examples
from trainhouse.checkpointing.errors import DamagedError, ObjectStoreUnavailableError
from trainhouse.checkpointing.stores.object_store import Body
from trainhouse.events import JobState, StepMetrics
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.model.tracking import ParametersLogged, TagsChanged, TrackedRunBegun, TrackedRunChanged
from trainhouse.gateway.app import make_app
from trainhouse.gateway.auth import tokens
from trainhouse.gateway.auth.keyring import Keyring
from trainhouse.gateway.context import Gateway
from trainhouse.gateway.live.hub import Hub
from trainhouse.gateway.optuna import log_routes, open_logs
from trainhouse.gateway.optuna.journal_log import BUNDLED, Append, bundle_key, encode, segment_key
from trainhouse.gateway.optuna.log_operations import external, parsed
from trainhouse.gateway.optuna.open_log import OpenLog
from trainhouse.gateway.optuna.stored_segments import StoredSegments
from trainhouse.gateway.optuna.trial_fold import EndedTrial, TrialFold
from trainhouse.gateway.optuna.trial_runs import records
from trainhouse.gateway.queries.sql_reader import SqlReader
from trainhouse.gateway.settings import GatewaySettings
from trainhouse.projections.settings import ClickHouseSettings

optuna.logging.set_verbosity(optuna.logging.ERROR)
LINE = '{"op_code":1,"worker_id":"w","study_id":0}'


class Lossy(MemoryObjectStore):
    """A store whose answers to writes get lost at times, after the write or before it."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)

    def put_if_absent(self, key: str, body: Body) -> bool:
        fate = self._random.random()
        if fate < 0.1:
            raise ObjectStoreUnavailableError("not written")
        written = super().put_if_absent(key, body)
        if fate < 0.2:
            raise ObjectStoreUnavailableError("written, and not answered")
        return written


def opened(objects: MemoryObjectStore, published: list[EndedTrial] | None = None, name: str = "s") -> OpenLog:
    async def publish(ended: EndedTrial) -> None:
        await asyncio.sleep(0)
        if published is not None:
            published.append(ended)

    return OpenLog(StoredSegments(objects, "vision", name), publish)


def of(number: object, *lines: str) -> Append:
    return Append(str(number), "ana", 1000, lines or (f'{{"op_code":1,"worker_id":"{number}","study_id":0}}',))


@given(st.integers(0, 2**32))
@settings(max_examples=examples(25), deadline=None)
def test_appends_by_several_gateways_are_in_one_order_and_once_whatever_is_lost(seed: int) -> None:
    """Each is sent again until it is answered, by any gateway, one of which is replaced by a new one at times."""
    objects, drawn = Lossy(seed), random.Random(seed)
    gateways = [opened(objects) for _ in range(3)]

    async def send(number: int) -> None:
        while True:
            if drawn.random() < 0.05:
                gateways[drawn.randrange(3)] = opened(objects)
            gateway = gateways[drawn.randrange(3)]
            reader = gateways[drawn.randrange(3)]
            try:
                place = await gateway.append(of(number))
                await reader.refresh()
            except ObjectStoreUnavailableError:
                continue
            assert json.loads(reader.state.lines[place.first])["worker_id"] == str(number), "there at once, for every reader"
            return

    async def all_of() -> None:
        await asyncio.gather(*map(send, range(40)))
        found = [opened(objects), *gateways]
        for each in found:
            await each.refresh()
        assert len({tuple(each.state.lines) for each in found}) == 1
        counts = Counter(json.loads(line)["worker_id"] for line in found[0].state.lines)
        assert counts == Counter(map(str, range(40)))

    asyncio.run(all_of())


def test_what_waits_together_is_one_segment_and_an_append_stays_whole() -> None:
    objects = MemoryObjectStore()

    async def all_of() -> None:
        log = opened(objects)
        places = await asyncio.gather(*(log.append(of(n, LINE, LINE)) for n in range(10)))
        assert sorted(place.first for place in places) == list(range(0, 20, 2))

    asyncio.run(all_of())
    assert len(list(objects.list("optuna/"))) == 1


def test_a_repeat_is_the_same_append_also_after_a_restart_and_at_once() -> None:
    objects = MemoryObjectStore()

    async def all_of() -> None:
        log = opened(objects)
        first, again = await asyncio.gather(log.append(of("a")), log.append(of("a")))
        assert first == again == await opened(objects).append(of("a"))
        assert not log.state.is_same(of("a", LINE, LINE)) and log.state.is_same(of("a"))
        assert len(log.state.lines) == 1

    asyncio.run(all_of())


def test_bundles_are_read_in_place_of_their_segments() -> None:
    objects = MemoryObjectStore()

    async def all_of() -> list[str]:
        log = opened(objects)
        for n in range(BUNDLED * 2 + 3):
            await log.append(of(n))
        while not log.idle:
            await asyncio.sleep(0.01)
        other = opened(objects)
        await other.refresh()
        assert other.state.lines == log.state.lines
        return other.state.lines

    lines = asyncio.run(all_of())
    assert [stat.key for stat in objects.list("optuna/vision/s/bundles/")] == [bundle_key("vision", "s", n) for n in (0, 1)]
    for n in range(BUNDLED * 2):
        objects.delete(segment_key("vision", "s", n))
    segments, bundled = StoredSegments(objects, "vision", "s").load()
    assert bundled == 2 * BUNDLED and [line for segment in segments for each in segment for line in each.lines] == lines


def test_a_hole_in_the_chain_is_damage_and_no_end() -> None:
    objects = MemoryObjectStore()

    async def all_of() -> None:
        log = opened(objects)
        for n in range(3):
            await log.append(of(n))
        objects.delete(segment_key("vision", "s", 1))
        with pytest.raises(DamagedError, match=r"0000000001\.json is missing"):
            await opened(objects).refresh()
        objects.put(segment_key("vision", "s", 1), b"{}")
        with pytest.raises(DamagedError, match="no segment"):
            await opened(objects).append(of(4))

    asyncio.run(all_of())


def test_a_load_that_fails_half_way_begins_anew_at_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    objects, fold, folded = MemoryObjectStore(), TrialFold.fold, 0

    def short_of_memory(self: TrialFold, operation: Any, append: Append) -> EndedTrial | None:
        nonlocal folded
        folded += 1
        if folded == 3:
            raise MemoryError
        return fold(self, operation, append)

    async def all_of() -> None:
        log = opened(objects)
        for n in range(3):
            await log.append(of(n))
        monkeypatch.setattr(TrialFold, "fold", short_of_memory)
        other = opened(objects)
        with pytest.raises(MemoryError):
            await other.refresh()
        assert (other.state.segments, other.state.lines) == (0, []), "nothing of it is kept"
        place = await other.append(of(3))
        assert place.first == 3 and other.state.segments == 4
        third = opened(objects)
        await third.refresh()
        assert third.state.lines == other.state.lines

    asyncio.run(all_of())


ODD = [
    json.dumps({"op_code": 4, "study_id": 0, "intermediate_values": {"1" * 4301: 1.0}}),
    '{"op_code":4,"study_id":0,"params":{"x":1}}',
    '{"op_code":6,"trial_id":"0"}',
    '{"op_code":3,"study_id":0,"system_attr":[]}',
    "[]",
    "no JSON",
    "[" * 100_000,
]


def test_a_stored_line_that_cannot_be_folded_counts_for_nothing_and_is_told_of() -> None:
    """What an earlier program took, say: all other lines count."""
    journal, objects, published = Direct(), MemoryObjectStore(), list[EndedTrial]()
    optuna.create_study(storage=optuna.storages.JournalStorage(journal)).optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
    lines = journal.lines[:2], journal.lines[2:]
    segments = [[of("first", *lines[0], *ODD)], [of("odd", *ODD), of("second", *lines[1])]]
    for number, segment in enumerate(segments):
        objects.put(segment_key("vision", "s", number), encode([segment]))

    async def all_of() -> None:
        log = opened(objects, published)
        await log.refresh()
        assert log.state.lines == [*lines[0], *ODD, *ODD, *lines[1]]
        await log.append(of("third", lines[0][0]))
        objects.put(segment_key("vision", "s", 3), encode([[of("odd too", *ODD)]]))
        await log.refresh()
        assert log.state.segments == 4 and [each.trial.number for each in published] == [0, 1]

    with capture_logs() as told:
        asyncio.run(all_of())
    assert [(each["log_level"], each["log"], each["append"], each["lines"]) for each in told] == [
        ("warning", "s", name, len(ODD)) for name in ("first", "odd", "odd too")
    ]


KEY = secrets.token_hex(32)


@pytest.fixture
def asked() -> Iterator[tuple[TestClient, MemoryObjectStore]]:
    """The gateway's app over a store in memory, asked by somebody of all projects. Nothing here reaches a table."""
    chosen = GatewaySettings.model_validate({"key": KEY, "hosts": "gateway"})
    gateway = Gateway(chosen, Keyring.of_settings(chosen), SqlReader(ClickHouseSettings()), ListBus(), Hub(50, 100))  # type: ignore[arg-type]
    gateway.revocations.complete()
    gateway.projects.complete()
    app, objects = make_app(gateway), MemoryObjectStore()
    app.state.code_store = objects
    token = tokens.issue(KEY.encode(), "root", ["admin"], ["*"], now_s=int(time.time()))
    with TestClient(app, base_url="http://gateway", headers={"Authorization": f"Bearer {token}"}) as client:
        yield client, objects


def sent(client: TestClient, key: str, *lines: str) -> Any:
    return client.post("/v1/optuna/vision/search/logs", json={"lines": lines}, headers={"Idempotency-Key": key})


@pytest.mark.parametrize(("bound", "most"), [("MOST_LOG_BYTES", 3 * len(LINE)), ("MOST_LOG_LINES", 3)])
def test_a_full_log_takes_nothing_also_where_a_gateway_has_to_read_it_first(
    asked: tuple[TestClient, MemoryObjectStore], monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    client, objects = asked
    monkeypatch.setattr(log_routes, bound, most)
    assert sent(client, "1", LINE, LINE).status_code == sent(client, "2", LINE).status_code == 200
    for _ in range(2):
        refused = sent(client, "3", LINE)
        assert refused.status_code == 422 and f"may have {most}: go on in a storage of another name" in refused.json()["detail"]
        assert sent(client, "2", LINE).json() == {"first": 2, "count": 1}, "a repeat of what is there is harmless"
        del client.app.state.optuna_logs  # type: ignore[attr-defined]
    assert len(list(objects.list("optuna/"))) == 2


@pytest.mark.parametrize("project", ["a%0Ab", "%00", "a%1F"])
def test_a_project_with_control_characters_is_none(asked: tuple[TestClient, MemoryObjectStore], project: str) -> None:
    client, objects = asked
    place = f"/v1/optuna/{project}/search/logs"
    told = client.post(place, json={"lines": [LINE]}, headers={"Idempotency-Key": "1"}), client.get(place)
    assert [each.status_code for each in told] == [422, 422] and not list(objects.list(""))


def test_logs_are_forgotten_by_what_their_lines_take_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_logs, "MOST_BYTES", 2000)

    async def all_of() -> None:
        logs = open_logs.OpenLogs(MemoryObjectStore(), ListBus())
        first, second, third = (logs.open("vision", name) for name in "abc")
        await first.append(of(1, LINE, LINE))
        await second.append(of(1, LINE))
        while not (first.idle and second.idle):
            await asyncio.sleep(0.01)
        assert (logs.open("vision", "a"), logs.open("vision", "b")) == (first, second), "three lines of 43 bytes are within the bound"
        await third.append(of(1, LINE))
        assert logs.open("vision", "c") is third
        assert logs.open("vision", "a") is not first and logs.open("vision", "b") is second, "what was used last stays"

    asyncio.run(all_of())


def test_one_log_is_loaded_at_a_time_and_makes_those_that_nobody_waits_for_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    objects, load, names = MemoryObjectStore(), StoredSegments.load, "abcdef"
    for name in names:
        objects.put(segment_key("vision", name, 0), encode([[of(name, *[LINE] * 10)]]))
    monkeypatch.setattr(open_logs, "MOST_BYTES", 1)
    logs = open_logs.OpenLogs(objects, ListBus())
    loads, most_loads, most_kept = 0, 0, 0

    def watched(stored: StoredSegments) -> Any:
        nonlocal loads, most_loads, most_kept
        loads += 1
        time.sleep(0.02)
        most_loads = max(most_loads, loads)
        most_kept = max(most_kept, sum(bool(log.state.lines) for log in logs._logs.values()))
        found = load(stored)
        loads -= 1
        return found

    async def all_of() -> None:
        opened = [logs.open("vision", name) for name in names]
        await asyncio.gather(*(log.refresh() for log in opened))
        assert all(len(log.state.lines) == 10 for log in opened)
        assert (most_loads, most_kept, loads) == (1, 0, 0)

    monkeypatch.setattr(StoredSegments, "load", watched)
    asyncio.run(all_of())


class Direct(BaseJournalBackend):
    """Optuna's operations in a list, each of which the gateway would take."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        for each in logs:
            parsed(line := json.dumps(each))
            self.lines.append(line)

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines[log_number_from:]]


def ends(lines: list[str]) -> list[EndedTrial]:
    fold = TrialFold()
    found = [fold.fold(json.loads(line), Append(str(n), "ana", 1000 + n, (line,))) for n, line in enumerate(lines)]
    return [each for each in found if each is not None]


def objective(trial: optuna.Trial) -> float:
    x = trial.suggest_float("x", -1, 1)
    trial.suggest_int("layers", 1, 8, log=True)
    trial.suggest_categorical("act", ["relu", None, True, 3])
    trial.set_user_attr("seen", {"at": trial.number})
    for step in range(3):
        trial.report(x / (step + 1), step)
    if trial.number % 3 == 1:
        raise optuna.TrialPruned
    if trial.number % 3 == 2:
        raise ValueError("broken")
    return x


def test_trials_end_as_optuna_says_with_their_params_values_and_states() -> None:
    journal = Direct()
    storage = optuna.storages.JournalStorage(journal)
    study = optuna.create_study(storage=storage, study_name="first")
    study.enqueue_trial({"x": 0.5})
    study.optimize(objective, n_trials=12, catch=ValueError)
    study.add_trial(optuna.create_trial(params={"x": 0.25}, distributions={"x": optuna.distributions.FloatDistribution(-1, 1)}, value=7.0))
    several = optuna.create_study(storage=storage, study_name="second", directions=["minimize", "maximize"])
    several.set_metric_names(["loss", "speed"])
    several.optimize(lambda trial: (trial.suggest_float("y", 0, 1), 2.0), n_trials=2)
    found = ends(journal.lines)
    expected = [(study.study_name, trial) for study in (study, several) for trial in study.get_trials(deepcopy=False)]
    assert len(found) == len(expected) == 15
    for ended, (name, trial) in zip(found, expected, strict=True):
        assert (ended.study, ended.trial.number, ended.state.name) == (name, trial.number, trial.state.name)
        assert ended.trial.params == trial.params and list(ended.values) == (trial.values or [])
        assert {step: value for step, (value, _) in ended.trial.reports.items()} == trial.intermediate_values
        assert ended.trial.attributes == trial.user_attrs
    assert found[-1].metrics == ("loss", "speed")


def test_a_trial_that_ended_is_a_run_with_its_params_points_and_state() -> None:
    journal = Direct()
    study = optuna.create_study(storage=optuna.storages.JournalStorage(journal), study_name="first\n\ud800")
    study.optimize(objective, n_trials=3, catch=ValueError)
    first, pruned, failed = (records("vision", "s", ended) for ended in ends(journal.lines))
    assert first == records("vision", "s", ends(journal.lines)[0]), "whichever gateway makes them"
    trial = study.trials[0]
    events = [event for _, event, _ in first]
    (begun,) = (each for each in events if isinstance(each, TrackedRunBegun))
    assert (begun.project, begun.experiment, begun.name, begun.user, begun.client) == (
        "vision",
        "vision/first ?",
        "trial 0",
        "ana",
        "optuna",
    )
    (logged,) = (each for each in events if isinstance(each, ParametersLogged))
    assert logged.parameters == {
        name: str(value) if not isinstance(value, bool | None) else json.dumps(value) for name, value in trial.params.items()
    }
    (points,) = (each for each in events if isinstance(each, StepMetrics))
    assert points.metrics["value"][-1] == trial.value and points.steps == (0, 1, 2, 2)[: len(points.steps)]
    (tags,) = (each for each in events if isinstance(each, TagsChanged))
    assert tags.tags["optuna.state"] == "COMPLETE" and json.loads(tags.tags["optuna.attr.seen"]) == {"at": 0}
    states = [next(event.state for _, event, _ in each if isinstance(event, TrackedRunChanged)) for each in (first, pruned, failed)]
    assert states == [JobState.SUCCEEDED, JobState.CANCELLED, JobState.FAILED]
    assert len({event_id for each in (first, pruned, failed) for _, _, event_id in each}) == sum(map(len, (first, pruned, failed)))


def test_a_run_is_published_before_its_append_is_answered_and_again_by_whoever_reads_first() -> None:
    journal, objects, is_away = Direct(), MemoryObjectStore(), True
    optuna.create_study(storage=optuna.storages.JournalStorage(journal)).optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    published: list[EndedTrial] = []

    async def publish(ended: EndedTrial) -> None:
        if is_away:
            raise BusUnavailableError("away")
        published.append(ended)

    async def all_of() -> None:
        nonlocal is_away
        log = OpenLog(StoredSegments(objects, "vision", "s"), publish)
        with pytest.raises(BusUnavailableError):
            await log.append(of("all", *journal.lines))
        is_away = False
        await log.append(of("all", *journal.lines))
        assert [each.trial.number for each in published] == [0] and len(log.state.lines) == len(journal.lines)
        other = OpenLog(StoredSegments(objects, "vision", "s"), publish)
        await other.refresh()
        while not other.idle:
            await asyncio.sleep(0.01)
        assert [each.trial.number for each in published] == [0, 0]

    asyncio.run(all_of())


JUNK = [
    "x",
    "[]",
    "{}",
    "null",
    '{"op_code":10,"worker_id":"w"}',
    '{"op_code":true,"worker_id":"w","study_id":0}',
    '{"op_code":1,"study_id":0}',
    '{"op_code":1,"worker_id":"w","study_id":"0"}',
    '{"op_code":0,"worker_id":"w","study_name":"a","directions":[]}',
    '{"op_code":0,"worker_id":"w","study_name":"a","directions":[3]}',
    '{"op_code":4,"worker_id":"w","study_id":0}',
    '{"op_code":4,"worker_id":"w","study_id":0,"datetime_start":"yesterday"}',
    '{"op_code":6,"worker_id":"w","trial_id":0,"state":1,"values":[1]}',
    '{"op_code":6,"worker_id":"w","trial_id":0,"state":9,"values":null}',
    '{"op_code":2,"worker_id":"w","study_id":0,"user_attr":{}}',
    '{"op_code":5,"worker_id":"w","trial_id":0,"param_name":"x","param_value_internal":0,"distribution":"{}"}',
    '{"op_code":1,"worker_id":"w","study_id":0,"more":' + "[" * 5000 + "]" * 5000 + "}",
    *(
        json.dumps({"op_code": 4, "worker_id": "w", "study_id": 0, "datetime_start": None, "intermediate_values": {step: 1.0}})
        for step in ("1" * 4301, "1" * 19, "\u0661", "--1", "1\n", "-", "")
    ),
    LINE + "\n",
    '{"op_code":1,\n"worker_id":"w","study_id":0}',
]


@pytest.mark.parametrize("line", JUNK)
def test_a_line_that_is_no_operation_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parsed(line)


FEW = st.sampled_from([0, 1])
MOSTLY = st.sampled_from(range(20)).flatmap(lambda n: NUMBERS if n == 0 else FEW)
NUMBERS = st.one_of(FEW, st.integers(-2, 12), st.floats(), st.sampled_from([10**400, True, None]))
RANGES = st.fixed_dictionaries(
    {"low": MOSTLY, "high": MOSTLY | st.integers(1, 9)}, optional={"log": st.booleans() | st.none(), "step": MOSTLY}
)
KINDS = ("FloatDistribution", "IntDistribution", "UniformDistribution")
DISTRIBUTIONS = st.one_of(
    st.tuples(st.sampled_from(KINDS), RANGES).map(lambda found: {"name": found[0], "attributes": found[1]}),
    st.lists(st.one_of(NUMBERS, st.text(max_size=2)), max_size=3).map(
        lambda found: {"name": "CategoricalDistribution", "attributes": {"choices": found}}
    ),
    st.dictionaries(st.sampled_from(["name", "type", "attributes"]), st.sampled_from(["float", "int", "categorical", None])),
).map(json.dumps)
TIMES = st.sampled_from(["2026-01-01T00:00:00"] * 5 + [None, "x", 3])
FIELDS = {
    "study_id": MOSTLY,
    "trial_id": MOSTLY,
    "study_name": st.text(max_size=2),
    "directions": st.lists(FEW, min_size=1, max_size=2) | MOSTLY,
    "user_attr": st.dictionaries(st.text(max_size=1), MOSTLY, min_size=1, max_size=1),
    "system_attr": st.dictionaries(st.text(max_size=1), MOSTLY, min_size=1, max_size=1),
    "param_name": st.sampled_from(["x", "y"]),
    "param_value_internal": MOSTLY,
    "distribution": DISTRIBUTIONS,
    "state": st.integers(0, 5),
    "values": st.none() | st.lists(MOSTLY, max_size=2),
    "value": MOSTLY,
    "step": MOSTLY,
    "intermediate_value": MOSTLY,
    "datetime_start": TIMES,
    "datetime_complete": TIMES,
    "params": st.dictionaries(st.sampled_from(["x", "y"]), MOSTLY, max_size=1),
    "user_attrs": st.just({}) | MOSTLY,
    "system_attrs": st.just({}),
    "distributions": st.dictionaries(st.sampled_from(["x", "y"]), DISTRIBUTIONS, max_size=1),
    "intermediate_values": st.dictionaries(st.sampled_from(["1", "-1", "a"]), MOSTLY, max_size=1),
}
NAMES: dict[int, tuple[str, ...]] = {
    0: ("study_name", "directions"),
    1: ("study_id",),
    2: ("study_id", "user_attr"),
    3: ("study_id", "system_attr"),
    4: ("study_id", "datetime_start"),
    5: ("trial_id", "param_name", "param_value_internal", "distribution"),
    6: ("trial_id", "state", "values", "datetime_start", "datetime_complete"),
    7: ("trial_id", "step", "intermediate_value"),
    8: ("trial_id", "user_attr"),
    9: ("trial_id", "system_attr"),
    10: (),
}
OF_TEMPLATE = (
    "state",
    "value",
    "values",
    "datetime_complete",
    "params",
    "distributions",
    "user_attrs",
    "system_attrs",
    "intermediate_values",
)
OPERATIONS = st.sampled_from(sorted(NAMES)).flatmap(
    lambda code: st.fixed_dictionaries(
        {"op_code": st.just(code), "worker_id": st.just("w")} | {name: FIELDS[name] for name in NAMES[code]},
        optional={name: FIELDS[name] for name in OF_TEMPLATE} if code == 4 else {},
    )
)


@given(DISTRIBUTIONS, MOSTLY)
@settings(max_examples=examples(300), deadline=None)
def test_every_parameter_that_is_taken_is_one_for_optuna(distribution: str, internal: Any) -> None:
    try:
        value = external(distribution, internal)
    except ValueError:
        return
    expected = optuna.distributions.json_to_distribution(distribution).to_external_repr(internal)
    assert value == expected or math.isnan(value)


@given(st.lists(OPERATIONS, max_size=12))
@settings(max_examples=examples(50), deadline=None)
def test_every_line_that_is_taken_can_be_replayed_by_optuna_and_folded_here(operations: list[dict[str, Any]]) -> None:
    replay, fold = JournalStorageReplayResult("me-"), TrialFold()
    begin = [
        {"op_code": 0, "worker_id": "w", "study_name": "s", "directions": [1]},
        {"op_code": 4, "worker_id": "w", "study_id": 0, "datetime_start": None},
    ]
    for number, operation in enumerate([*begin, *operations]):
        line = json.dumps(operation)
        try:
            parsed(line)
        except ValueError:
            assert operation not in begin
            continue
        replay.apply_logs([json.loads(line)])
        ended = fold.fold(json.loads(line), Append(str(number), "ana", 1000, (line,)))
        if ended is not None:
            records("vision", "s", ended)
            found = replay.get_trial(ended.trial.trial_id)
            assert (found.state.name, found.number) == (ended.state.name, ended.trial.number)
