"""A job of one project names another project's secret: the agent refuses it, whatever was admitted; and files on disk tell nothing."""

import os
import stat
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainhouse.events import GangAllocated, JobSpec, NodePlacement
from trainhouse.events.model.secret_names import SecretName
from trainhouse.workers.agent.core import AttemptKey
from trainhouse.workers.agent.errors import NotLaunchableError
from trainhouse.workers.agent.launch.secretfiles import SecretFiles, runtime_folder
from trainhouse.workers.secretstore.errors import SecretError
from trainhouse.workers.secretstore.records import SecretRecord
from trainhouse.workers.secretstore.references import parse_reference
from trainhouse.workers.secretstore.sealing import KeyFile
from trainhouse.workers.secretstore.store import SecretStore

VALUE = b"value-of-vision-8471"
NAME = SecretName("vision", "HUB_TOKEN")


@pytest.fixture
def store(tmp_path: Path) -> SecretStore:
    made = SecretStore(tmp_path / "secrets", tmp_path / "secrets.key")
    made.put(SecretRecord(NAME, VALUE))
    return made


@pytest.fixture
def files(store: SecretStore, tmp_path: Path) -> Iterator[SecretFiles]:
    try:
        runtime_folder(None)
    except NotLaunchableError as error:
        pytest.skip(str(error))
    made = SecretFiles(store, tmp_path / "agent")
    yield made
    made.sweep(())
    made.root().rmdir() if made.root().is_dir() else None


def gang(project: str, *secrets: str, epoch: int = 0) -> GangAllocated:
    spec = JobSpec.model_validate({"project": project, "secrets": secrets, "runtime": {"command": ["python"]}})
    place = NodePlacement(node_id="n", boot_id="b", address="127.0.0.1", first_rank=0, devices=("d",))
    ids = {"job_id": "j", "attempt": 0, "epoch": epoch, "pool": "default", "spec": spec, "spec_sha256": spec.sha256()}
    return GangAllocated.model_validate({**ids, "placements": (place,), "master_address": "127.0.0.1", "master_port": 1})


@pytest.mark.parametrize("wanted", ["HUB_TOKEN", "vision/HUB_TOKEN", "speech/HUB_TOKEN", "default/HUB_TOKEN"])
def test_another_projects_secret_is_not_handed_out(files: SecretFiles, wanted: str) -> None:
    with pytest.raises(NotLaunchableError) as refused:
        files.hand_out(gang("speech", wanted))
    assert VALUE.decode() not in str(refused.value) and not refused.value.retryable
    assert not files.folder_of("j", 0).exists()


def test_the_refusal_says_whose_it_is_and_the_way_out(files: SecretFiles) -> None:
    with pytest.raises(NotLaunchableError, match=r"belongs to project vision.*trainhouse secrets grant vision/HUB_TOKEN --to speech"):
        files.hand_out(gang("speech", "vision/HUB_TOKEN"))


def test_a_grant_opens_it_and_a_revocation_closes_it(store: SecretStore, files: SecretFiles) -> None:
    record = store.get(NAME)
    assert record is not None
    store.put(record.granted("speech"))
    assert files.hand_out(gang("speech", "vision/HUB_TOKEN")).values == {"HUB_TOKEN": VALUE.decode()}
    store.put(record.granted("speech").revoked("speech"))
    with pytest.raises(NotLaunchableError):
        files.hand_out(gang("speech", "vision/HUB_TOKEN"))


def test_the_own_project_comes_before_the_default_one(store: SecretStore, files: SecretFiles) -> None:
    store.put(SecretRecord(SecretName("default", "HUB_TOKEN"), b"everybody-1", grants=("vision", "speech")))
    assert files.hand_out(gang("vision", "HUB_TOKEN")).values == {"HUB_TOKEN": VALUE.decode()}
    assert files.hand_out(gang("speech", "HUB_TOKEN")).values == {"HUB_TOKEN": "everybody-1"}


def test_a_plain_file_of_before_is_the_default_projects_alone(store: SecretStore, files: SecretFiles) -> None:
    old = store.folder / "OLD"
    old.write_bytes(b"set-long-ago")
    old.chmod(0o600)
    assert files.hand_out(gang("default", "OLD")).values == {"OLD": "set-long-ago"}
    with pytest.raises(NotLaunchableError, match="secrets grant OLD --to vision"):
        files.hand_out(gang("vision", "OLD"))
    record = store.get(SecretName("default", "OLD"))
    assert record is not None
    store.put(record.granted("vision"))
    assert not old.exists() and files.hand_out(gang("vision", "OLD")).values == {"OLD": "set-long-ago"}


@pytest.mark.parametrize("project", ["../vision", "a/b", "..", ".", "%2e%2e", "x/../vision"])
def test_no_name_of_a_project_leaves_its_folder(store: SecretStore, project: str) -> None:
    name = SecretName(project, "HUB_TOKEN")
    assert store.get(name) is None
    store.put(SecretRecord(name, b"other"))
    found, vision = store.get(name), store.get(NAME)
    assert found is not None and found.value == b"other" and vision is not None and vision.value == VALUE
    assert set(store.names()) == {NAME, name}
    assert all(p.parent.parent.name == "by-project" for p in store.folder.rglob("HUB_TOKEN"))


def test_what_lies_on_disk_tells_no_value_and_is_the_owners_alone(store: SecretStore) -> None:
    for path in store.folder.rglob("*"):
        if path.is_file():
            assert VALUE not in path.read_bytes() and stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    assert stat.S_IMODE(store.key.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700


def test_of_many_that_make_the_key_at_once_all_find_the_same_whole_one(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: KeyFile(tmp_path / "secrets.key").made(), range(64)))
    assert found == [KeyFile(tmp_path / "secrets.key").keys()] * 64 and len(found[0]) == 1


def test_another_uid_reads_neither_key_nor_secret(store: SecretStore) -> None:
    if os.getuid() != 0:
        pytest.skip("this runner cannot change its uid")
    for path in (store.key.path, *(p for p in store.folder.rglob("*") if p.is_file())):
        done = subprocess.run(["cat", str(path)], user=65534, group=65534, extra_groups=[], cwd="/", capture_output=True, check=False)
        assert done.returncode != 0 and done.stdout == b"" and b"denied" in done.stderr


def test_a_sealed_file_that_was_moved_or_changed_does_not_open(store: SecretStore) -> None:
    stolen = SecretName("speech", "HUB_TOKEN")
    store.put(SecretRecord(stolen, b"x"))
    ours, theirs = (store.folder / "by-project" / project / "HUB_TOKEN" for project in ("vision", "speech"))
    theirs.write_bytes(ours.read_bytes())
    with pytest.raises(SecretError, match="somebody moved the file"):
        store.get(stolen)
    raw = bytearray(ours.read_bytes())
    raw[len(raw) // 2] ^= 1
    ours.write_bytes(bytes(raw))
    with pytest.raises(SecretError, match="vision/HUB_TOKEN cannot be opened"):
        store.get(NAME)


def test_a_rotated_key_opens_everything_and_the_old_one_nothing(store: SecretStore, tmp_path: Path) -> None:
    plain = store.folder / "OLD"
    plain.write_bytes(b"set-long-ago")
    plain.chmod(0o600)
    old_key = store.key.path.read_bytes()
    assert store.rotate_key() == 2 and not plain.exists()
    vision, old = store.get(NAME), store.get(SecretName("default", "OLD"))
    assert vision is not None and vision.value == VALUE and old is not None and old.value == b"set-long-ago"
    thief = SecretStore(store.folder, tmp_path / "stolen.key")
    thief.key.replace(old_key.split())
    with pytest.raises(SecretError, match="cannot be opened"):
        thief.get(NAME)


def test_a_rotation_that_was_cut_off_goes_on(store: SecretStore) -> None:
    from cryptography.fernet import Fernet

    store.key.replace([Fernet.generate_key(), *store.key.keys()])  # the new key is written, nothing is sealed with it
    found = store.get(NAME)
    assert found is not None and found.value == VALUE
    assert store.rotate_key() == 1 and len(store.key.keys()) == 1
    found = store.get(NAME)
    assert found is not None and found.value == VALUE


def test_a_key_that_others_may_read_is_refused(store: SecretStore) -> None:
    store.key.path.chmod(0o644)
    with pytest.raises(SecretError, match="may be read by others"):
        store.get(NAME)


def test_secrets_of_an_attempt_are_in_memory_private_and_gone_with_it(files: SecretFiles) -> None:
    given = files.hand_out(gang("vision", "HUB_TOKEN"))
    assert given.folder is not None and given.folder.parent == files.root()
    assert stat.S_IMODE(given.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((given.folder / "HUB_TOKEN").stat().st_mode) == 0o600
    assert (given.folder / "HUB_TOKEN").read_bytes() == VALUE
    assert VALUE.decode() not in repr(given)
    files.remove(AttemptKey("j", 0))  # type: ignore[arg-type]
    assert not given.folder.exists()


def test_what_an_agent_left_behind_is_swept(files: SecretFiles) -> None:
    kept = files.hand_out(gang("vision", "HUB_TOKEN", epoch=1)).folder
    left = files.hand_out(gang("vision", "HUB_TOKEN", epoch=0)).folder
    assert files.sweep([AttemptKey("j", 1)]) == 1  # type: ignore[arg-type]
    assert kept is not None and kept.is_dir() and left is not None and not left.exists()


def test_a_folder_that_somebody_made_first_is_refused(files: SecretFiles) -> None:
    if os.getuid() != 0:
        pytest.skip("this runner cannot change its uid")
    files.root().mkdir()
    os.chown(files.root(), 65534, 65534)
    with pytest.raises(NotLaunchableError, match="could not be written"):
        files.hand_out(gang("vision", "HUB_TOKEN"))


def test_a_disk_is_no_place_for_secrets(store: SecretStore, tmp_path: Path) -> None:
    try:
        if runtime_folder(tmp_path):
            pytest.skip("temporary folders are on tmpfs here")
    except NotLaunchableError as refused:
        assert "TRAINHOUSE_AGENT_SECRETS_RUNTIME_DIR" in str(refused)


def test_a_rotated_value_is_seen_and_what_it_replaced_stays_covered(store: SecretStore, files: SecretFiles, tmp_path: Path) -> None:
    from trainhouse.workers.launcher.masker import Masker
    from trainhouse.workers.launcher.rotated import Rotated

    source = tmp_path / "hub"
    source.write_bytes(b"first-value\n")
    source.chmod(0o600)
    store.put(SecretRecord(NAME, reference=parse_reference(f"file:{source}")))
    allocation = gang("vision", "HUB_TOKEN")
    given = files.hand_out(allocation)
    assert given.folder is not None and given.values == {"HUB_TOKEN": "first-value"}
    masker, rotated = Masker(["first-value"]), Rotated(str(given.folder))
    rotated.look(masker)
    for value in (b"second-value", b"third-value"):  # the second one is read by a rank, and replaced before the keeper looks
        source.write_bytes(value)
        assert files.refresh([allocation]) == 1
    assert files.refresh([allocation]) == 0
    assert (given.folder / "HUB_TOKEN").read_bytes() == b"third-value"
    rotated.look(masker)
    out = masker.feed(b"first-value second-value third-value\n") + masker.flush()
    assert out == b"*** *** ***\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root has attempts with a uid of their own")
def test_a_value_is_the_ranks_own_before_it_takes_the_place_of_another(
    store: SecretStore, files: SecretFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocation = gang("vision", "HUB_TOKEN")
    given = files.hand_out(allocation)
    assert given.folder is not None
    for path in (given.folder, given.folder / "HUB_TOKEN"):
        os.chown(path, 54_321, 54_321)
    store.put(SecretRecord(NAME, b"another-value"))
    given_away: list[bytes] = []
    chown = os.chown

    def watched(path: Path, uid: int, gid: int) -> None:
        given_away.append((folder / "HUB_TOKEN").read_bytes())
        chown(path, uid, gid)

    folder = given.folder
    monkeypatch.setattr(os, "chown", watched)
    assert files.refresh([allocation]) == 1
    assert given_away == [VALUE], "a rank that read it meanwhile would be refused"
    assert (folder / "HUB_TOKEN").read_bytes() == b"another-value" and (folder / "HUB_TOKEN").stat().st_uid == 54_321


def test_a_refresh_that_fails_leaves_what_was_there(store: SecretStore, files: SecretFiles) -> None:
    given = files.hand_out(gang("vision", "HUB_TOKEN"))
    store.remove(NAME)
    assert files.refresh([gang("vision", "HUB_TOKEN")]) == 0
    assert given.folder is not None and (given.folder / "HUB_TOKEN").read_bytes() == VALUE


def test_a_refresh_does_not_bring_back_what_was_removed(store: SecretStore, files: SecretFiles) -> None:
    allocation = gang("vision", "HUB_TOKEN")
    files.hand_out(allocation)
    files.remove(AttemptKey("j", 0))  # type: ignore[arg-type]
    store.put(SecretRecord(NAME, b"another-value"))
    assert files.refresh([allocation]) == 0 and not files.folder_of("j", 0).exists()
