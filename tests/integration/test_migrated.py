"""Engines from a copy of a migrated folder: they hold what migrations from empty make, and nothing of each other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tables.migrated import connect_migrated, template_key
from trainhouse.projections.store.clickhouse import ConnectClickHouse, connect_embedded
from trainhouse.projections.store.migrate import migrate, migrations

REPOSITORY = Path(__file__).parents[2]
IN_A_PROCESS = """
import sys
from pathlib import Path
from tests.support.tables.migrated import connect_migrated
made = connect_migrated(Path(sys.argv[1]), 1024**3, 2, Path(sys.argv[2]))
made.command("INSERT INTO dead_letters_rows (topic, head) VALUES ('t', '{}')")
print(made.rows("SELECT count() FROM dead_letters_rows")[0][0])
made.close()
"""


def schema(made: ConnectClickHouse) -> list[tuple[object, ...]]:
    return made.rows("SELECT name, create_table_query FROM system.tables WHERE database = currentDatabase() ORDER BY name")


def test_a_copy_holds_what_migrations_from_empty_make(tmp_path: Path) -> None:
    made = connect_embedded(tmp_path / "empty", 1024**3, 2)
    try:
        migrate(made)
        wanted = schema(made)
    finally:
        made.close()
    copied = connect_migrated(tmp_path / "copied", 1024**3, 2, tmp_path / "templates")
    try:
        assert len(wanted) > 40 and schema(copied) == wanted
    finally:
        copied.close()


def test_processes_beside_each_other_share_one_template_and_no_rows(tmp_path: Path) -> None:
    templates = tmp_path / "templates"
    (templates / "of-before").mkdir(parents=True)
    (templates / f"{template_key()}.building").mkdir()  # a build that was cut
    for turn in range(2):  # the second turn copies after the first has written
        command = [sys.executable, "-c", IN_A_PROCESS]
        both = [
            subprocess.Popen([*command, str(tmp_path / f"{turn}-{n}"), str(templates)], cwd=REPOSITORY, stdout=subprocess.PIPE)
            for n in range(2)
        ]
        assert [(process.communicate(timeout=120)[0].split(), process.returncode) for process in both] == [([b"1"], 0)] * 2
        assert sorted(entry.name for entry in templates.iterdir()) == sorted([template_key(), "lock"])


def test_a_template_that_lacks_a_migration_is_refused(tmp_path: Path) -> None:
    known = migrations()
    template = tmp_path / "templates" / template_key()
    made = connect_embedded(template, 1024**3, 2)
    try:
        migrate(made, known[:-1])
    finally:
        made.close()
    with pytest.raises(AssertionError, match=known[-1].name):
        connect_migrated(tmp_path / "copied", 1024**3, 2, tmp_path / "templates")
