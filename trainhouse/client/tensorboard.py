"""TensorBoard's event files as a tracked run: its scalars as points, its hyperparameters as parameters.

Holds: a file is a stream whose points are counted, and a run's id follows from its project, name and folder: reading the same files again
adds nothing, and reading files that have grown adds what is new. Files are read by TensorBoard's own library, piece by piece.
Never: changes or locks a file.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainhouse.client.errors import InvalidSettingsError, NotReachableError
from trainhouse.events import Event, JobId, JobState, envelope_of
from trainhouse.events.bus.kafka import EventProducer
from trainhouse.events.model.errors import BusUnavailableError
from trainhouse.events.model.tracking import ParametersLogged, TagsChanged, TrackedRunBegun, TrackedRunChanged, experiment_id_of, project_of
from trainhouse.events.runtime.clock import wall_ms
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.points import Point, records_of
from trainhouse.events.wire.topics import TRACKED_METRICS, TRACKING

SOURCE = "trainhouse/tensorboard"
PATTERN = "*tfevents*"
PIECE = 20_000
MAX_KEY_CHARS = 250
MAX_TIME_MS = 4_000_000_000_000
Send = Callable[[str, Event, str], None]


@dataclass
class Read:
    """Result of a read of the files."""

    runs: set[str] = field(default_factory=set)
    points: int = 0
    passed_over: int = 0


@dataclass
class _File:
    """One event file, how many points of it were read, and of what kind each tag is: that is told with its first value only."""

    stream: str
    loader: Any
    points: int = 0
    kinds: dict[str, str] = field(default_factory=dict)


@dataclass
class _Run:
    """One folder's run."""

    job_id: JobId
    name: str
    files: dict[Path, _File] = field(default_factory=dict)
    begun: bool = False
    last_ms: int = 0
    parameters: dict[str, str] = field(default_factory=dict)


class TensorBoardImport:
    """Reads a folder, with all below it, as often as `read` is called. `send` returns when the brokers hold the event."""

    def __init__(self, folder: Path, experiment: str, name: str, user: str, send: Send) -> None:
        self._folder = folder
        self._experiment = experiment
        self._name = name
        self._user = user
        self._send = send
        self._runs: dict[Path, _Run] = {}

    def read(self, *, ended: bool = True) -> Read:
        """Sends what is new in the files. `ended`: nobody writes them any more. Blocks. Raises NotReachableError, InvalidSettingsError."""
        found = Read()
        for path in sorted(self._folder.rglob(PATTERN)):
            if path.is_file():
                self._read_file(path, found)
        for run in self._runs.values():
            if run.begun:
                found.runs.add(str(run.job_id))
                self._publish(run, ended)
        return found

    def _run_of(self, folder: Path) -> _Run:
        if folder not in self._runs:
            inner = folder.relative_to(self._folder).as_posix()
            name = self._name if inner == "." else f"{self._name}/{inner}"
            digest = hashlib.sha256(f"{self._experiment}\n{name}".encode()).hexdigest()
            self._runs[folder] = _Run(JobId(f"tb-{digest[:24]}"), name)
        return self._runs[folder]

    def _read_file(self, path: Path, found: Read) -> None:
        run = self._run_of(path.parent)
        if path not in run.files:
            digest = hashlib.sha256(path.name.encode()).hexdigest()
            run.files[path] = _File(f"tensorboard-{digest[:24]}", _loader(path))
        try:
            self._read_on(run, run.files[path], found)
        except BaseException:
            # It stands behind entries that nobody sent. Begun anew, it counts right, and what was sent adds nothing.
            del run.files[path]
            raise

    def _read_on(self, run: _Run, file: _File, found: Read) -> None:
        piece: list[Point] = []
        for entry in _entries(file):
            if isinstance(entry, dict):
                run.parameters |= entry
            elif (point := _usable(entry)) is None:
                found.passed_over += 1
            else:
                piece.append(point)
            if len(piece) >= PIECE:
                self._send_piece(run, file, piece, found)
                piece = []
        self._send_piece(run, file, piece, found)

    def _send_piece(self, run: _Run, file: _File, piece: list[Point], found: Read) -> None:
        if not piece:
            return
        if not run.begun:
            self._begin(run, piece[0].time_ms)
        for record in records_of(run.job_id, piece, file.stream, first=file.points):
            self._send(TRACKED_METRICS, record, f"{run.job_id}:0:0:{record.stream}:{record.start}")
        file.points += len(piece)
        found.points += len(piece)
        run.last_ms = max(run.last_ms, *(p.time_ms for p in piece))

    def _begin(self, run: _Run, started_ms: int) -> None:
        project = project_of(self._experiment)
        begun = TrackedRunBegun(
            job_id=run.job_id,
            experiment_id=experiment_id_of(self._experiment),
            experiment=self._experiment,
            project=project,
            name=run.name,
            user=self._user,
            client="tensorboard",
            started_at_ms=started_ms,
        )
        tags = {"mlflow.runName": run.name, "tensorboard.folder": str(self._folder)}
        self._send(TRACKING, begun, secrets.token_hex(16))
        self._send(TRACKING, TagsChanged(job_id=run.job_id, tags=tags, at_ms=started_ms), secrets.token_hex(16))
        run.begun = True

    def _publish(self, run: _Run, ended: bool) -> None:
        if run.parameters:
            logged = ParametersLogged(job_id=run.job_id, parameters=run.parameters, at_ms=run.last_ms)
            self._send(TRACKING, logged, secrets.token_hex(16))
            run.parameters = {}
        if ended:
            state = TrackedRunChanged(job_id=run.job_id, state=JobState.SUCCEEDED, ended_at_ms=run.last_ms, at_ms=run.last_ms)
            self._send(TRACKING, state, secrets.token_hex(16))


def send_to(kafka: KafkaSettings) -> Send:
    """Sends one event at a time, acked before the next goes out. Raises NotReachableError. Blocks."""
    producer = EventProducer(kafka, log_level=0)

    def send(topic: str, event: Event, event_id: str) -> None:
        try:
            producer.send(topic, envelope_of(event, id=event_id, source=SOURCE, now_ms=wall_ms()))
            producer.flush()
        except BusUnavailableError as error:
            raise NotReachableError(f"Kafka at {kafka.bootstrap} does not answer: {error}") from error

    return send


def _loader(path: Path) -> Any:
    try:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    except ImportError as error:
        raise InvalidSettingsError("reading TensorBoard's files needs its library: pip install 'trainhouse[tensorboard]'") from error
    return EventFileLoader(str(path))


def _entries(file: _File) -> Iterator[Point | dict[str, str]]:
    """Scalars as points and hyperparameters as text, in the order of the file; what else there is does not count."""
    from tensorboard.plugins.hparams import metadata as hparams
    from tensorboard.util import tensor_util

    for event in file.loader.Load():
        for value in event.summary.value if event.HasField("summary") else ():
            kind = value.metadata.plugin_data.plugin_name
            if kind:
                file.kinds[value.tag] = kind
            kind = file.kinds.get(value.tag, "")
            if kind == "scalars" and value.HasField("tensor"):
                number = float(tensor_util.make_ndarray(value.tensor).item())
                yield Point(value.tag, number, event.step, round(event.wall_time * 1000) if math.isfinite(event.wall_time) else 0)
            elif kind == hparams.PLUGIN_NAME and value.tag == hparams.SESSION_START_INFO_TAG:
                started = hparams.parse_session_start_info_plugin_data(value.metadata.plugin_data.content)
                yield {name[:MAX_KEY_CHARS]: _text(given) for name, given in started.hparams.items() if name}


def _text(value: Any) -> str:
    kind = value.WhichOneof("kind")
    return "" if kind is None else str(getattr(value, kind))[:6000]


def _usable(point: Point) -> Point | None:
    """A point that can be kept: a name, a step from 0 on, a time since 1970."""
    key = point.key[:MAX_KEY_CHARS]
    if not key or not key.isprintable() or point.step < 0 or not 0 <= point.time_ms <= MAX_TIME_MS:
        return None
    return point._replace(key=key)
