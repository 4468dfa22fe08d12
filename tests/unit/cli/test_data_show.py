"""`data show` and others: what a publisher wrote reaches others' terminals as text, never as an escape sequence."""

from types import SimpleNamespace

import pytest

from trainhouse.cli.data import dataset_commands, drift_command
from trainhouse.client.dataset_versions import PublishedVersion
from trainhouse.events.model.dataset import DataField, DatasetVersionDeprecated, DataShard, DataSplit, Manifest, version_of
from trainhouse.events.model.dataset_drift import FieldDrift

Captured = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
EVIL, SHOWN = "\x1b]0;title\x07\x9b2J", r"\x1b]0;title\x07\x9b2J"
SHA = "a" * 64


def published() -> tuple[PublishedVersion, Manifest]:
    splits = {"train": DataSplit(shards=(DataShard(sha256=SHA, index_sha256=SHA, bytes=1, samples=1),), samples=1, bytes=1)}
    manifest = Manifest.of((DataField(name="txt", type="text"),), splits, f"rule{EVIL}", licence=f"mit{EVIL}", purposes=("any\x9b2J",))
    deprecated = DatasetVersionDeprecated(dataset="speech", sha256=manifest.sha256(), reason=f"old{EVIL}", deprecated_at_ms=1)
    return PublishedVersion(version_of(manifest, "speech", "p"), f"ana{EVIL}", 1, deprecated=deprecated), manifest


def is_harmless(text: str) -> bool:
    return all(char.isprintable() or char == "\n" for char in text)


def test_what_a_version_says_of_itself_is_escaped(capsys: Captured, monkeypatch: Patch) -> None:
    monkeypatch.setattr(dataset_commands, "shown_version", lambda reference: published())
    dataset_commands.show("speech@1.0.0")
    text = capsys.readouterr().out
    assert is_harmless(text)
    assert all(f"{word}{SHOWN}" in text for word in ("rule", "mit", "ana", "old")) and r"any\x9b2J" in text


def test_the_reason_of_a_deprecation_is_escaped(capsys: Captured, monkeypatch: Patch) -> None:
    monkeypatch.setattr(dataset_commands, "known_version", lambda reference: published()[0])
    dataset_commands.deprecate("speech@1.0.0", "again")
    remark = capsys.readouterr().err
    assert is_harmless(remark) and f"old{SHOWN}" in remark


def test_the_name_of_a_sample_is_escaped(capsys: Captured, monkeypatch: Patch) -> None:
    monkeypatch.setattr(dataset_commands, "opened_version", lambda reference: published())
    monkeypatch.setattr(dataset_commands, "object_store", lambda: None)
    found = SimpleNamespace(key=f"s1{EVIL}", fields={"txt": b"x"})
    monkeypatch.setattr("trainhouse.workers.data.published_data.stored_sample", lambda *of: found)
    dataset_commands.sample("speech@1.0.0")
    text = capsys.readouterr().out
    assert is_harmless(text) and f"s1{SHOWN}" in text


def test_the_reason_of_a_drift_is_escaped(capsys: Captured) -> None:
    drift_command.show_fields((FieldDrift(field="txt", verdict="DRIFTED", reason=f"new values: {EVIL}"),))
    text = capsys.readouterr().out
    assert is_harmless(text) and f"new values: {SHOWN}" in text
