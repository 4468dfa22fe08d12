"""The quick endpoint is the one that the settings models give, or none."""

import os
from pathlib import Path

import pytest

from trainhouse.client.kafka.wiring import sql_of_settings
from trainhouse.client.quick.quick_sql import endpoint_of, settings_file

KAFKA = '[kafka]\nbootstrap = "127.0.0.1:9092"\n'
SQL = '[clickhouse]\nurl = "http://127.0.0.1:8123/"\n'


@pytest.mark.parametrize(
    "file",
    [
        KAFKA + SQL,
        KAFKA + SQL + 'user = "ann"\npassword = "p"\n',  # pragma: allowlist secret
        KAFKA + SQL + 'user = "ann"\ndatabase = "other"\n',
        KAFKA + SQL + 'database = "default"\n',
    ],
)
@pytest.mark.parametrize("environment", [{}, {"TRAINHOUSE_CLICKHOUSE_USER": "bob", "TRAINHOUSE_CLICKHOUSE_URL": "http://other:1"}])
def test_it_is_what_the_settings_give(file: str, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trainhouse.toml").write_text(file)
    monkeypatch.setenv("TRAINHOUSE_CONFIG", str(tmp_path / "trainhouse.toml"))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert endpoint_of(settings_file() or {}, os.environ) == sql_of_settings()


def test_it_is_none_where_the_settings_have_to_decide() -> None:
    url, kafka = {"url": "http://a:1"}, {"bootstrap": "a:2"}
    assert endpoint_of({"clickhouse": url, "kafka": kafka}, {}) is not None
    assert endpoint_of({"clickhouse": url, "gateway": {"url": "http://g"}}, {}) is None
    assert endpoint_of({"kafka": kafka}, {}) is None
    assert endpoint_of({"kafka": kafka, "clickhouse": url | {"timeout_s": "soon"}}, {}) is None
    assert endpoint_of({"kafka": kafka, "clickhouse": {"url": "a:1"}}, {}) is None
    account = {"url": "http://reader:s3cret@a:1"}  # pragma: allowlist secret
    assert endpoint_of({"kafka": kafka, "clickhouse": account}, {}) is None
