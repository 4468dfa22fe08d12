"""What a person adds to the broker's settings stays, and wins."""

from pathlib import Path

from trainhouse.deploy.local.servers.kafka_broker import KafkaServer
from trainhouse.deploy.local.servers.kafka_sasl import Account


def test_own_settings_win_over_ours_and_the_rest_stays(tmp_path: Path) -> None:
    server = KafkaServer(tmp_path, 19_001, 19_002)
    plain = server.settings()
    server.own_settings_file.write_text("# more room\nnum.io.threads = 9\n\nadvertised.listeners=PLAINTEXT://kafka:9=2\n")
    assert server.settings() == plain | {"num.io.threads": "9", "advertised.listeners": "PLAINTEXT://kafka:9=2"}


def test_with_an_account_no_listener_is_open(tmp_path: Path) -> None:
    settings = KafkaServer(tmp_path, 19_001, 19_002, account=Account("broker", "hidden")).settings()
    names = [each.partition("://")[0] for each in settings["listeners"].split(",")]
    protocols = dict(each.split(":") for each in settings["listener.security.protocol.map"].split(","))
    assert {protocols[name] for name in names} == {"SASL_PLAINTEXT"}
    assert settings["allow.everyone.if.no.acl.found"] == "false"
    assert settings["super.users"] == "User:broker;User:operator"
    assert "hidden" not in repr(Account("broker", "hidden"))
