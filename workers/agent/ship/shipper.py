"""Ships the files of every attempt on the node, finished ones too until the brokers hold all of them.

Holds: positions are saved after acks, so that a restarted agent goes on there; each call does a bounded amount of work.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import orjson
import structlog

from trainhouse.events import GangAllocated
from trainhouse.workers.agent.atomic_files import write_atomically
from trainhouse.workers.agent.core import AttemptKey
from trainhouse.workers.agent.core.telemetry import RankIdentity
from trainhouse.workers.agent.periodic import due
from trainhouse.workers.agent.ship.outbox import Outbox
from trainhouse.workers.agent.ship.rank_shipper import RankProgress, RankShipper, positions_of
from trainhouse.workers.agent.ship.spool_cover import SpoolCover
from trainhouse.workers.launcher import AttemptPaths

log = structlog.get_logger(__name__)
POSITIONS = "shipped.json"
SAVE_INTERVAL_MS = 200


class AttemptShipper:
    """The ranks of one attempt on this node."""

    def __init__(self, paths: AttemptPaths, ranks: Mapping[int, RankShipper], cover: SpoolCover | None = None) -> None:
        self.ranks = dict(ranks)
        self._cover = cover
        self.writers_gone = False
        self._file = paths.folder / POSITIONS
        self._saved: dict[str, dict[str, int]] = {}
        self._save_at_ms = 0

    def pump(self, now_ms: int) -> bool:
        """One piece of each file; True while there is more."""
        more = False
        for rank in self.ranks.values():
            more = rank.pump(now_ms, final=self.writers_gone) or more
        return more

    def shipped(self) -> bool:
        return self.writers_gone and all(r.shipped() for r in self.ranks.values())

    def save(self, now_ms: int, at_once: bool = False) -> None:
        """Saves the positions if they changed, a few times a second at most."""
        if not at_once and not due(self._save_at_ms, now_ms, SAVE_INTERVAL_MS):
            return
        positions = {str(r): s.positions() for r, s in self.ranks.items()}
        if positions != self._saved and self._file.parent.is_dir():
            self._save_at_ms = now_ms + SAVE_INTERVAL_MS
            try:
                write_atomically(self._file, orjson.dumps(positions), durable=False)
                self._saved = positions
            except OSError as error:  # a full disk: a restart would cut again from the older place, and readers trim that
                log.warning("positions are not saved", file=str(self._file), error=str(error))
            for rank in self.ranks.values():
                rank.free_shipped()

    def close(self) -> None:
        for rank in self.ranks.values():
            rank.close()
        if self._cover is not None:
            self._cover.close()


class Shipper:
    """All attempts' files. One thread only."""

    def __init__(
        self,
        agent_dir: Path,
        node_id: str,
        outbox: Outbox,
        control_partition: Callable[[], int | None],
        log_limit_bytes: int,
        cover_of: Callable[[GangAllocated], SpoolCover | None] = lambda _: None,
    ) -> None:
        self._cover_of = cover_of
        self._agent_dir = agent_dir
        self._node_id = node_id
        self._outbox = outbox
        self._control_partition = control_partition
        self._log_limit = log_limit_bytes
        self._attempts: dict[AttemptKey, AttemptShipper] = {}

    def follow(self, allocation: GangAllocated) -> None:
        """Begins to ship an attempt's files, from where an earlier agent left off. The files may not exist yet."""
        key = AttemptKey(allocation.job_id, int(allocation.epoch))
        placement = allocation.on_node(self._node_id)
        if key in self._attempts or placement is None:
            return
        paths = AttemptPaths.of(self._agent_dir, key.job_id, key.epoch)
        saved = _read(paths.folder / POSITIONS)
        cover = self._cover_of(allocation)
        ranks = {r: self._rank(allocation, paths, r, saved, cover) for r in placement.ranks}
        self._attempts[key] = AttemptShipper(paths, ranks, cover)

    def _rank(
        self, allocation: GangAllocated, paths: AttemptPaths, rank: int, saved: dict[str, object], cover: SpoolCover | None
    ) -> RankShipper:
        return RankShipper(
            RankIdentity.of(allocation, self._node_id, rank),
            paths.rank(rank),
            self._outbox,
            self._control_partition,
            source=f"trainhouse/agent/{self._node_id}",
            log_limit_bytes=self._log_limit,
            positions=positions_of(saved.get(str(rank))),
            cover=cover,
        )

    def writers_gone(self, key: AttemptKey) -> None:
        """Marks the attempt's files as complete: a last line without its line break counts."""
        if key in self._attempts:
            self._attempts[key].writers_gone = True

    def rank_ended(self, key: AttemptKey, rank: int, now_ms: int) -> None:
        """Ships what the rank's spool tells to control before its end is reported, as far as the outbox has room."""
        attempt = self._attempts.get(key)
        shipper = attempt.ranks.get(rank) if attempt else None
        while shipper is not None and shipper.pump_spool(now_ms):
            pass
        if shipper is not None:
            shipper.report_progress(now_ms, at_once=True)

    def pump(self, now_ms: int) -> bool:
        """One piece of each file; True while there is more to do at once."""
        more = False
        for attempt in self._attempts.values():
            more = attempt.pump(now_ms) or more
            attempt.save(now_ms)
        return more

    def take_shipped(self, now_ms: int) -> list[AttemptKey]:
        """Attempts whose writers are gone and whose every byte is acked; they are followed no longer."""
        done = [k for k, a in self._attempts.items() if a.shipped()]
        for key in done:
            attempt = self._attempts.pop(key)
            attempt.save(now_ms, at_once=True)
            attempt.close()
        return done

    def following(self) -> bool:
        """Returns whether there is any attempt to ship."""
        return bool(self._attempts)

    def progress(self, key: AttemptKey, rank: int) -> RankProgress:
        attempt = self._attempts.get(key)
        return attempt.ranks[rank].newest if attempt and rank in attempt.ranks else RankProgress()

    def lag_bytes(self) -> int:
        return sum(r.lag_bytes() for a in self._attempts.values() for r in a.ranks.values())

    def save(self, now_ms: int) -> None:
        for attempt in self._attempts.values():
            attempt.save(now_ms, at_once=True)


def _read(path: Path) -> dict[str, object]:
    try:
        found = orjson.loads(path.read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}
