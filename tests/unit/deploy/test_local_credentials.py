"""Generated passwords: made once, for their owner alone."""

from datetime import UTC, datetime
from pathlib import Path

from trainhouse.deploy.local import client_config
from trainhouse.deploy.local.client_config import exports
from trainhouse.deploy.local.credentials.passwords import credentials_file, forget, known, noted, password, renew
from trainhouse.deploy.local.layout import Choices, StackFolder, StackPorts, read_toml
from trainhouse.deploy.local.supervision.stack_parts import all_parts
from trainhouse.deploy.local.supervision.supervisor_config import render
from trainhouse.events.security.grants import OPERATOR, PRINCIPALS


def test_a_password_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    folder = StackFolder(tmp_path)
    first = password(folder, "kafka", "scheduler")
    assert len(first) >= 40
    assert password(folder, "kafka", "scheduler") == first
    assert password(folder, "kafka", "agent") != first
    assert password(folder, "sql", "scheduler") != first
    assert credentials_file(folder).stat().st_mode & 0o777 == 0o600


def test_a_password_is_renewed_and_its_age_known_without_it(tmp_path: Path) -> None:
    folder = StackFolder(tmp_path)
    first = password(folder, "kafka", "scheduler")
    second = renew(folder, "kafka", "scheduler")
    assert second != first
    assert password(folder, "kafka", "scheduler") == second
    (found,) = known(folder)
    assert (found.server, found.name) == ("kafka", "scheduler")
    assert found.made_at is not None
    assert abs((datetime.now(UTC) - found.made_at).total_seconds()) < 60
    assert second not in repr(found)


def test_passwords_of_a_folder_that_noted_no_times_are_kept(tmp_path: Path) -> None:
    folder = StackFolder(tmp_path)
    credentials_file(folder).write_text('[kafka]\nscheduler = "before"\n')
    assert password(folder, "kafka", "scheduler") == "before"
    assert [each.made_at for each in known(folder)] == [None]


def test_what_is_forgotten_is_gone(tmp_path: Path) -> None:
    folder = StackFolder(tmp_path)
    password(folder, "store", "old key")
    forget(folder, "store", "old key")
    assert known(folder) == []
    assert noted(folder, "store", "old key") is None


def test_each_part_has_a_file_with_its_own_account(tmp_path: Path) -> None:
    folder = StackFolder(tmp_path)
    folder.make()
    client_config.write(folder, Choices(StackPorts.from_base(30_000).numbers, 2), client_config.keys_of(folder))
    told = {name: exports(folder, name) for name in PRINCIPALS} | {OPERATOR: exports(folder)}
    for name, variables in told.items():
        assert variables["TRAINHOUSE_KAFKA_SASL_USERNAME"] == name
        assert Path(variables["TRAINHOUSE_CONFIG"]).stat().st_mode & 0o777 == 0o600
        found = read_toml(Path(variables["TRAINHOUSE_CONFIG"]))["kafka"]
        assert found["sasl_password"] == variables["TRAINHOUSE_KAFKA_SASL_PASSWORD"] == password(folder, "kafka", name)
    assert len({variables["TRAINHOUSE_KAFKA_SASL_PASSWORD"] for variables in told.values()}) == len(told)


def test_no_password_is_in_the_supervisors_file_or_in_an_argument(tmp_path: Path) -> None:
    folder = StackFolder(tmp_path)
    folder.make()
    client_config.write(folder, Choices(StackPorts.from_base(30_000).numbers, 2), client_config.keys_of(folder))
    listed = all_parts(folder, StackPorts.from_base(30_000), client_config.keys_of(folder))
    text = render(folder, listed) + repr(listed)
    hidden = [*client_config.passwords(folder).values(), password(folder, "kafka", "broker"), client_config.keys_of(folder).secret_key]
    assert not any(each in text for each in hidden)
    of = {part.name: Path(part.environment["TRAINHOUSE_CONFIG"]).name for part in listed if part.group != "servers"}
    assert of == {name: f"{name}.toml" for name in of} | {"sweep": "expire.toml"}, "a sweep needs what expire needs, and no more"
