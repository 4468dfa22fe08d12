"""Generated passwords: made once, for their owner alone."""

from pathlib import Path

from trainhouse.deploy.local.credentials import credentials_file, password
from trainhouse.deploy.local.layout import StackFolder


def test_a_password_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    folder = StackFolder(tmp_path)
    first = password(folder, "kafka", "scheduler")
    assert len(first) >= 40
    assert password(folder, "kafka", "scheduler") == first
    assert password(folder, "kafka", "agent") != first
    assert password(folder, "sql", "scheduler") != first
    assert credentials_file(folder).stat().st_mode & 0o777 == 0o600
