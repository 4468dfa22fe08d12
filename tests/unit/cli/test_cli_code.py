"""Packing the working folder: the same content gives the same bytes, what git ignores stays, links do not leak."""

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from trainhouse.cli.shared.code_upload import remarks
from trainhouse.client import code_archive
from trainhouse.client.code_archive import pack
from trainhouse.client.code_selection import looks_secret, selected
from trainhouse.client.errors import CodeTooLargeError, CodeUnreadableError
from trainhouse.deploy.local.layout import StackFolder


def names(archive: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return tar.getnames()


def git(folder: Path, *arguments: str) -> None:
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, env={**os.environ, **who})


def fill(folder: Path) -> Path:
    (folder / "pkg" / "__pycache__").mkdir(parents=True)
    (folder / "train.py").write_text("print('hi')\n")
    (folder / "pkg" / "a.py").write_text("x = 1\n")
    (folder / "pkg" / "__pycache__" / "a.pyc").write_bytes(b"junk")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    return folder


def test_without_git_everything_but_junk(tmp_path: Path) -> None:
    packed = pack(fill(tmp_path))
    assert names(packed.archive) == ["pkg/a.py", "run.sh", "train.py"]
    assert packed.git_commit is None
    assert not packed.dirty


def test_the_same_content_is_the_same_archive(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    first, second = fill(tmp_path / "one"), fill(tmp_path / "two")
    os.utime(second / "train.py", (1, 1))
    (second / "train.py").chmod(0o600)
    assert pack(first).sha256 == pack(second).sha256
    (second / "train.py").write_text("print('ho')\n")
    assert pack(first).sha256 != pack(second).sha256


def test_the_executable_bit_is_kept(tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(pack(fill(tmp_path)).archive)) as tar:
        assert tar.getmember("run.sh").mode == 0o755
        assert tar.getmember("train.py").mode == 0o644


def test_with_git_what_git_would_see(tmp_path: Path) -> None:
    fill(tmp_path)
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("*.pyc\ndata/\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "x")
    clean = pack(tmp_path)
    assert clean.git_commit is not None
    assert not clean.dirty
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "large.bin").write_bytes(b"x" * 1000)
    (tmp_path / "new.py").write_text("y = 2\n")
    (tmp_path / "train.py").write_text("print('changed')\n")
    (tmp_path / "run.sh").unlink()
    packed = pack(tmp_path)
    assert names(packed.archive) == [".gitignore", "new.py", "pkg/a.py", "train.py"]
    assert packed.git_commit == clean.git_commit
    assert packed.git_diff is not None
    assert b"+print('changed')" in packed.git_diff


def test_a_stacks_folder_of_any_name_is_neither_packed_nor_committed(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    StackFolder(tmp_path / "mine").make()
    (tmp_path / "mine/credentials.toml").write_text("x")
    (tmp_path / "train.py").write_text("x")
    assert names(pack(tmp_path).archive) == ["train.py"]
    (tmp_path / "mine/.gitignore").write_text("*\n!shared.md\n")
    StackFolder(tmp_path / "mine").make()
    assert "shared.md" in (tmp_path / "mine/.gitignore").read_text(), "what its owner wrote there stays"


@pytest.mark.parametrize("place", [".trainhouse", "work/.trainhouse"])
def test_a_stack_that_was_started_in_a_checkout_gives_no_key_along(tmp_path: Path, place: str) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / "credentials.toml").write_text("x")
    (tmp_path / "train.py").write_text("x")
    assert names(pack(tmp_path).archive) == ["train.py"]


def test_a_folder_inside_of_a_checkout_packs_itself_alone(tmp_path: Path) -> None:
    fill(tmp_path)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "x")
    assert "a.py" in names(pack(tmp_path / "pkg").archive)
    assert "train.py" not in names(pack(tmp_path / "pkg").archive)


def test_links_inside_stay_links_and_links_outside_become_files(tmp_path: Path) -> None:
    inside, outside = tmp_path / "code", tmp_path / "other.py"
    inside.mkdir()
    outside.write_text("z = 3\n")
    (inside / "a.py").write_text("x = 1\n")
    (inside / "link.py").symlink_to("a.py")
    (inside / "far.py").symlink_to(outside)
    with tarfile.open(fileobj=io.BytesIO(pack(inside).archive)) as tar:
        assert tar.getmember("link.py").issym()
        assert tar.getmember("far.py").isreg()
        tar.extractall(tmp_path / "out", filter="data")
    assert (tmp_path / "out" / "far.py").read_text() == "z = 3\n"
    (inside / "folder").symlink_to(tmp_path)
    with pytest.raises(CodeUnreadableError, match="folder is a link"):
        pack(inside)


def test_too_much_is_refused_with_the_largest_files(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "weights.bin").write_bytes(b"x" * 5000)
    assert pack(tmp_path, limit_bytes=10_000).files == 4
    with pytest.raises(CodeTooLargeError, match=r"weights\.bin .*\.trainhouseignore"):
        pack(tmp_path, limit_bytes=4_000)


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CodeUnreadableError, match="--code"):
        pack(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CodeUnreadableError, match="neither a file nor a link"):
        pack(tmp_path)


def test_a_file_that_goes_away_meanwhile_is_told_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walk = code_archive._walk

    def walk_and_lose(folder: Path, start: str, ignored: None) -> list[str]:
        found = list(walk(folder, start, ignored))
        (folder / "train.py").unlink()
        return found

    monkeypatch.setattr(code_archive, "_walk", walk_and_lose)
    with pytest.raises(CodeUnreadableError, match=r"train\.py changed while it was packed.*--code"):
        pack(fill(tmp_path))


@pytest.mark.parametrize("in_git", [True, False])
def test_what_trainhouseignore_names_stays_also_where_git_tracks_it(in_git: bool, tmp_path: Path) -> None:
    fill(tmp_path)
    for name in ("data/large.bin", "data/keep.txt", "pkg/notes.txt", "pkg/kept.txt", "top.txt", "pkg/top.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / ".trainhouseignore").write_text("# data\ndata/\n!data/keep.txt\npkg/*.txt\n!kept.txt\n/top.txt\nrun.sh\n!/pkg/top.txt\n")
    if in_git:
        git(tmp_path, "init", "-q")
        git(tmp_path, "add", "train.py", "run.sh", "data")
        git(tmp_path, "commit", "-q", "-m", "x")
        (tmp_path / ".gitignore").write_text("*.pyc\n")
    found = set(names(pack(tmp_path).archive)) - {".gitignore"}
    assert found == {".trainhouseignore", "pkg/a.py", "pkg/kept.txt", "pkg/top.txt", "train.py"}


def test_an_ignored_folder_is_not_even_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path)
    (tmp_path / "data").mkdir()
    os.mkfifo(tmp_path / "data" / "pipe")
    (tmp_path / ".trainhouseignore").write_text("data\n")
    seen: list[str] = []
    scan = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: (seen.append(str(path)), scan(path))[1])
    pack(tmp_path)
    assert any(path.endswith("pkg") for path in seen)
    assert not any(path.endswith("data") for path in seen)


def test_lines_of_trainhouseignore_that_are_no_pattern_are_refused_with_the_file(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / ".trainhouseignore").write_bytes(b"\xff\xfe")
    with pytest.raises(CodeUnreadableError, match=r"\.trainhouseignore"):
        pack(tmp_path)
    (tmp_path / ".trainhouseignore").write_text("data/\n!\n")
    with pytest.raises(CodeUnreadableError, match=r"\.trainhouseignore"):
        pack(tmp_path)


def test_without_patterns_everything_is_selected() -> None:
    assert list(selected(["a", "b/c"], None)) == ["a", "b/c"]


@pytest.mark.parametrize(
    "name",
    [
        *(".env", "app/.env.production", "tls/server.pem", "ID_RSA", ".ssh/id_ed25519", "gcp-credentials.json", "credentials", "a.p12"),
        *(".netrc", ".git-credentials", "client_secret_12.json", "secrets.yaml", "server.key", "kubeconfig", ".aws/credentials"),
    ],
)
def test_a_name_that_looks_like_a_secret(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name",
    ["train.py", ".env.example", "env", "id_rsa.pub", "credentials.py", "docs/credentials.md", "tokenizer.json", "keys.txt", "a/.envrc.py"],
)
def test_a_name_that_does_not(name: str) -> None:
    assert not looks_secret(name)


def test_what_goes_along_is_counted_with_what_git_does_not_track(tmp_path: Path) -> None:
    fill(tmp_path)
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("*.pyc\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "x")
    assert remarks(pack(tmp_path)) == ["code: 4 files, 0.1 MB"]
    (tmp_path / "big.bin").write_bytes(b"x" * 2_400_000)
    (tmp_path / "pkg" / ".env").write_text("KEY=1")
    packed = pack(tmp_path)
    assert packed.untracked == ("big.bin", "pkg/.env")
    assert remarks(packed) == [
        "code: 6 files, 2.5 MB, 2 of them not tracked by git: big.bin, pkg/.env",
        "warning: pkg/.env looks like a secret and goes along; name it in .trainhouseignore, and give secrets by `trainhouse secrets set`",
    ]


def test_without_git_there_is_nothing_untracked_and_long_lists_are_cut(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}.pem").write_text("x")
    packed = pack(tmp_path)
    assert packed.untracked == ()
    assert remarks(packed) == [
        "code: 5 files, 0.1 MB",
        "warning: 0.pem, 1.pem, 2.pem and 2 more look like secrets and go along; "
        "name them in .trainhouseignore, and give secrets by `trainhouse secrets set`",
    ]
    (tmp_path / "empty").mkdir()
    assert remarks(pack(tmp_path / "empty")) == ["code: 0 files, 0.0 MB"]
