"""`data export`: errors of the folder that it writes into."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.fakes.memory_store import MemoryObjectStore
from tests.unit.workers.data.test_exporting import ROWS, published
from trainhouse.cli.data import export_command
from trainhouse.cli.data.export_command import ExportFormat, export
from trainhouse.cli.shared.exit_codes import CliError, Exit
from trainhouse.client.dataset_versions import PublishedVersion
from trainhouse.events.model.dataset import version_of

NOBODY = 65534


@contextmanager
def unwritable() -> Iterator[Path]:
    """A folder that this process may read, and not write, also where root runs the tests."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        out.mkdir()
        Path(folder).chmod(0o755)
        out.chmod(0o555)
        own = os.geteuid()
        if own == 0:
            os.seteuid(NOBODY)
        try:
            yield out
        finally:
            os.seteuid(own)
            out.chmod(0o755)


@pytest.mark.parametrize("format", list(ExportFormat))
def test_a_folder_that_cannot_be_written_is_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: ExportFormat) -> None:
    objects = MemoryObjectStore()
    manifest = published(objects, tmp_path / "r.jsonl", ROWS)
    known = PublishedVersion(version_of(manifest, "speech", "p"), "ada", published_at_ms=1)
    monkeypatch.setattr(export_command, "opened_version", lambda _: (known, manifest))
    monkeypatch.setattr(export_command, "object_store", lambda: objects)
    export("speech@1.0.0", tmp_path / "out", format)  # imports all that it needs, while it may
    with unwritable() as out, pytest.raises(CliError, match=r"out: it cannot be written: Permission denied; ") as raised:
        export("speech@1.0.0", out, format)
    assert raised.value.code == Exit.FAILED and str(out) in str(raised.value)
