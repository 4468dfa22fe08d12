"""Brings a ClickHouse to the newest schema: numbered SQL files, forward only, each applied once and recorded.

Holds: every statement of a file is idempotent (`IF NOT EXISTS`, `OR REPLACE`), so a file that was cut in the middle is applied
again from its start at the next run; a file that changed after it was applied is refused.
Never: goes back, and never drops what holds data.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources

from trainhouse.projections.errors import BrokenMigrationError
from trainhouse.projections.store.clickhouse import ClickHouse

_FILE = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")
_COMMENT = re.compile(r"--[^\n]*")

RECORD = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    number UInt32, name String, sha256 String, applied_at DateTime64(3, 'UTC') DEFAULT now64(3)
) ENGINE = ReplacingMergeTree ORDER BY number
"""


@dataclass(frozen=True)
class Migration:
    """One file. `statements` are its SQL statements in order."""

    number: int
    name: str
    text: str

    @property
    def sha256(self) -> str:
        """Hex SHA-256 of what is executed: comments and blank space do not count."""
        return hashlib.sha256("\n".join(self.statements).encode()).hexdigest()

    @property
    def statements(self) -> list[str]:
        """The statements without comments; a `;` ends one, so none may stand inside a literal."""
        return [" ".join(s.split()) for s in _COMMENT.sub("", self.text).split(";") if s.strip()]


def migrations() -> list[Migration]:
    """The files of this package in order. Raises BrokenMigrationError on a repeated number."""
    found = []
    for entry in resources.files("trainhouse.projections").joinpath("migrations").iterdir():
        match = _FILE.match(entry.name)
        if match:
            found.append(Migration(int(match[1]), match[2], entry.read_text()))
    found.sort(key=lambda m: m.number)
    # Gaps are fine: numbers are given out before the files are written, and each file applies by itself.
    if len({m.number for m in found}) != len(found):
        raise BrokenMigrationError(f"each migration file needs a number of its own; found {[m.number for m in found]}")
    return found


def migrate(clickhouse: ClickHouse, files: Iterable[Migration] | None = None) -> list[str]:
    """Applies what is missing and returns its names. Blocks. Safe to interrupt at any point and to repeat."""
    known = list(migrations() if files is None else files)
    clickhouse.command(RECORD)
    applied = {int(n): (str(name), str(digest)) for n, name, digest in clickhouse.rows(_APPLIED)}
    _refuse_misfits(known, applied)
    done = []
    for migration in known:
        if migration.number in applied:
            continue
        for statement in migration.statements:
            clickhouse.command(statement)
        clickhouse.command(
            f"INSERT INTO schema_migrations (number, name, sha256) VALUES ({migration.number}, '{migration.name}', '{migration.sha256}')"
        )
        done.append(migration.name)
    return done


_APPLIED = "SELECT number, name, sha256 FROM schema_migrations FINAL ORDER BY number"


def _refuse_misfits(known: list[Migration], applied: dict[int, tuple[str, str]]) -> None:
    by_number = {m.number: m for m in known}
    for number, (name, digest) in applied.items():
        migration = by_number.get(number)
        if migration is None:
            raise BrokenMigrationError(
                f"migration {number:04} ({name}) was applied by a newer version; run that version, or rebuild the tables"
            )
        if migration.sha256 != digest:
            raise BrokenMigrationError(
                f"migration {number:04} ({name}) changed after it was applied; add a new file and leave the old one alone"
            )
