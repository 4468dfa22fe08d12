"""Engines with the newest tables, from a copy of a folder that was migrated once.

Holds: a template is keyed by all that shapes it (migrations, the migrator, the engine's version), appears whole or not at all, and is never
opened again; every copy goes through the migrator, which must find nothing left. One template is kept.
Never: serves a test of the migrations themselves; those start from an empty folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from trainhouse.projections.store import migrate as migrator
from trainhouse.projections.store.clickhouse import ConnectClickHouse, connect_embedded
from trainhouse.projections.store.migrate import migrate, migrations

# Beside pytest's own cache: processes of one checkout share it, and git ignores it.
TEMPLATES = Path(__file__).parents[3] / ".pytest_cache" / "migrated"


def connect_migrated(folder: Path, memory_bytes: int, merge_threads: int, templates: Path = TEMPLATES) -> ConnectClickHouse:
    """Opens an engine of its own with the newest tables in `folder`, which must be absent or empty."""
    _copy_template(folder, templates)
    made = connect_embedded(folder, memory_bytes, merge_threads)
    try:
        left = migrate(made)
        assert left == [], f"the template of {template_key()} lacked migrations: {left}"
    except BaseException:
        made.close()
        raise
    return made


def template_key() -> str:
    """Hash of all that decides what a migrated folder holds."""
    parts = [inspect.getsource(migrator), metadata.version("chdb"), metadata.version("chdb-core")]
    parts += [f"{m.number} {m.name} {m.text}" for m in migrations()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _copy_template(folder: Path, templates: Path) -> None:
    templates.mkdir(parents=True, exist_ok=True)
    template = templates / template_key()
    while True:
        with _locked(templates, fcntl.LOCK_SH):  # shared: nobody removes the template while it is copied
            if template.is_dir():
                shutil.copytree(template, folder, symlinks=True, dirs_exist_ok=True)
                return
        with _locked(templates, fcntl.LOCK_EX):
            if not template.is_dir():
                _build(template)


def _build(template: Path) -> None:
    for old in template.parent.iterdir():
        if old.is_dir():
            shutil.rmtree(old)
    building = template.with_suffix(".building")
    made = connect_embedded(building, 1024**3, 2)
    try:
        migrate(made)
    finally:
        made.close()
    building.rename(template)


@contextmanager
def _locked(templates: Path, how: int) -> Iterator[None]:
    with (templates / "lock").open("a") as file:  # closing it lets the lock go, and so does the end of the process
        fcntl.flock(file, how)
        yield
