"""What a person adds to the broker's settings stays, and wins."""

from pathlib import Path

from trainhouse.deploy.local.kafka import KafkaServer


def test_own_settings_win_over_ours_and_the_rest_stays(tmp_path: Path) -> None:
    server = KafkaServer(tmp_path, 19_001, 19_002)
    plain = server.settings()
    server.own_settings_file.write_text("# more room\nnum.io.threads = 9\n\nadvertised.listeners=PLAINTEXT://kafka:9=2\n")
    assert server.settings() == plain | {"num.io.threads": "9", "advertised.listeners": "PLAINTEXT://kafka:9=2"}
