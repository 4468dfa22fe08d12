"""Archives of code that are made to harm the agent: each is refused, and neither the agent nor the process that unpacks it grows."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from trainhouse.events import CodeArchive
from trainhouse.workers.agent.errors import NotLaunchableError
from trainhouse.workers.agent.launch.code_fetch import CodeCache
from trainhouse.workers.agent.launch.unpack_child import MAX_DEPTH, MEMORY_BYTES
from trainhouse.workers.agent.launch.unpacking import unpack

MIB = 1024 * 1024
Bomb = Callable[[], bytes]


def header(name: str, kind: bytes, size: int, link: str = "") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, link
    return info.tobuf(tarfile.GNU_FORMAT if kind in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_SPARSE) else tarfile.USTAR_FORMAT)


def blocks(content: bytes) -> bytes:
    return content + b"\0" * (-len(content) % 512)


def a_file(name: str = "train.py", content: bytes = b"x") -> bytes:
    return header(name, tarfile.REGTYPE, len(content)) + blocks(content)


def pax(records: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    return header("pax", kind, len(records)) + blocks(records)


def record(key: str, value: str) -> bytes:
    body = f" {key}={value}\n".encode()
    size = len(body)
    while len(str(size)) + len(body) != size:
        size = len(str(size)) + len(body)
    return str(size).encode() + body


def huge_pax_header() -> bytes:
    """195 KB as it lies in the store; 200 MiB once it is read."""
    size = 200 * MIB
    return gzip.compress(header("pax", tarfile.XHDTYPE, size) + b"0" * size, 9) + gzip.compress(a_file())


def many_global_headers() -> bytes:
    one = pax(b"".join(record(f"k{n}", "v" * 40) for n in range(900)), tarfile.XGLTYPE)
    return gzip.compress(one * 200 + b"".join(a_file(f"{n}") for n in range(2000)))


def headers_of_headers() -> bytes:
    return gzip.compress(pax(record("comment", "x")) * 20_000 + a_file())


def sparse_of_pax() -> bytes:
    told = record("GNU.sparse.major", "0") + record("GNU.sparse.numblocks", "1") + record("GNU.sparse.size", str(2**42))
    return gzip.compress(pax(told + record("GNU.sparse.map", f"0,{2**42}")) + a_file())


def zeros(size_bytes: int) -> bytes:
    """A file of zeros: a thousandth of it lies in the store."""
    info = tarfile.TarInfo("zeros")
    info.size = size_bytes
    piece = gzip.compress(b"\0" * (64 * MIB), 9)
    return gzip.compress(info.tobuf(tarfile.GNU_FORMAT)) + piece * 16


BOMBS: dict[str, tuple[Bomb, str]] = {
    "a pax header of 200 MiB": (huge_pax_header, "header of"),
    "a pax header of 8 EiB": (lambda: gzip.compress(header("pax", tarfile.XHDTYPE, 0o7777777777)), "header of"),
    "a long name of 1 GiB": (
        lambda: gzip.compress(header("././@LongLink", tarfile.GNUTYPE_LONGNAME, 1024 * MIB) + b"a" * MIB),
        "header of",
    ),
    "many global headers": (many_global_headers, "global headers"),
    "headers of headers": (headers_of_headers, "cannot be unpacked"),
    "a sparse file of GNU": (lambda: gzip.compress(header("s", tarfile.GNUTYPE_SPARSE, 512) + b"\0" * 512), "sparse"),
    "a sparse file of pax": (sparse_of_pax, "sparse"),
    "10 GiB of zeros": (lambda: zeros(10 * 1024 * MIB), "more than 8 GiB"),
    "a million members": (lambda: gzip.compress(header(".", tarfile.DIRTYPE, 0) * 200_001, 1), "more than 200000 files"),
    "folders without end": (lambda: gzip.compress(a_file("/".join(["d"] * (MAX_DEPTH + 36)))), "deeper than"),
    "a device": (lambda: gzip.compress(header("null", tarfile.CHRTYPE, 0)), "neither a file"),
    "a fifo": (lambda: gzip.compress(header("fifo", tarfile.FIFOTYPE, 0)), "neither a file"),
    "the largest dictionary of xz": (lambda: _xz_with_dictionary(), "MiB of memory"),
    "bz2 of bz2": (lambda: bz2.compress(bz2.compress(b"\0" * MIB)), "cannot be unpacked"),
    "half an archive": (lambda: gzip.compress(a_file(content=os.urandom(50_000)))[:30_000], "cannot be unpacked"),
    "a negative size": (lambda: gzip.compress(_negative()), "cannot be unpacked"),
}


def _xz_with_dictionary() -> bytes:
    """An xz stream whose header asks for the largest dictionary there is."""
    whole = bytearray(lzma.compress(a_file(), check=lzma.CHECK_NONE))
    at = whole.index(b"\x21\x01") + 2  # LZMA2, one byte of properties: the dictionary's size
    whole[at] = 40
    size = (whole[12] + 1) * 4
    whole[12 + size - 4 : 12 + size] = zlib.crc32(bytes(whole[12 : 12 + size - 4])).to_bytes(4, "little")
    return bytes(whole)


def _negative() -> bytes:
    raw = bytearray(header("n", tarfile.REGTYPE, 0))
    raw[124:136] = b"\xff" * 12
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    return bytes(raw) + b"\0" * 1024


RUN = """
import json, resource, sys, time
from pathlib import Path
from trainhouse.workers.agent.errors import NotLaunchableError
from trainhouse.workers.agent.launch.unpacking import unpack
folder = Path(sys.argv[2]); folder.mkdir()
before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
try:
    unpack(Path(sys.argv[1]), folder, "s3://b/code")
    error = None
except NotLaunchableError as refused:
    error = [str(refused), refused.retryable]
told = {"error": error, "took_s": time.monotonic() - began}
told["agent_kib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
told["child_kib"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps(told))
"""


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_and_nothing_grows(name: str, tmp_path: Path) -> None:
    make, why = BOMBS[name]
    content = make()
    (tmp_path / "archive").write_bytes(content)
    run = [sys.executable, "-c", RUN, str(tmp_path / "archive"), str(tmp_path / "out")]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    print(f"{name}: {len(content)} bytes in the store, {told}")
    assert told["error"] is not None and why in told["error"][0] and told["error"][1] is False, told
    assert told["agent_kib"] < 16 * 1024 and told["child_kib"] < MEMORY_BYTES // 1024


def test_it_takes_no_longer_than_it_may(tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(zeros(1024 * MIB))
    (tmp_path / "out").mkdir()
    with pytest.raises(NotLaunchableError, match=r"longer than 0\.1 s"):
        unpack(tmp_path / "archive", tmp_path / "out", "s3://b/code", limit_s=0.1)


def packed(*members: bytes) -> bytes:
    return gzip.compress(b"".join(members))


@pytest.mark.parametrize(
    "members",
    [
        [header("out", tarfile.SYMTYPE, 0, ".."), a_file("out/escaped")],
        [header("out", tarfile.SYMTYPE, 0, "../.."), a_file("out/escaped")],
        [header("a", tarfile.SYMTYPE, 0, "."), header("a/b", tarfile.SYMTYPE, 0, ".."), a_file("a/b/escaped")],
        [
            header("d/e/f", tarfile.DIRTYPE, 0),
            header("d/e/f/l", tarfile.SYMTYPE, 0, "../../.."),
            header("z", tarfile.SYMTYPE, 0, "d/e/f/l/.."),
        ],
        [header("etc", tarfile.SYMTYPE, 0, "/etc"), a_file("etc/escaped")],
        [header("h", tarfile.LNKTYPE, 0, "../archive")],
        [header("l", tarfile.SYMTYPE, 0, "train.py"), header("h", tarfile.LNKTYPE, 0, "/etc/passwd")],
        [a_file("../escaped")],
        [a_file("/tmp/escaped")],
        [a_file("a/../../escaped")],
        [pax(record("path", "../escaped")) + a_file()],
        [pax(record("linkpath", "/etc/passwd")) + header("p", tarfile.SYMTYPE, 0, "x")],
    ],
)
def test_nothing_leads_out_of_the_folder(members: list[bytes], tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(packed(*members))
    (tmp_path / "in" / "out").mkdir(parents=True)
    with pytest.raises(NotLaunchableError, match="cannot be unpacked"):
        unpack(tmp_path / "archive", tmp_path / "in" / "out", "s3://b/code")
    outside = [found for found in tmp_path.rglob("escaped") if not found.resolve().is_relative_to(tmp_path / "in" / "out")]
    assert not outside and not Path("/tmp/escaped").exists()
    for found in tmp_path.rglob("*"):
        assert found.resolve().is_relative_to(tmp_path)


def test_what_people_pack_is_unpacked_as_it_was(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "pkg" / ("long" * 40)).mkdir(parents=True)
    (source / "pkg" / "train.py").write_text("print(1)")
    (source / "pkg" / ("long" * 40) / ("name" * 30 + ".py")).write_bytes(os.urandom(100_000))
    (source / "run.sh").write_text("#!/bin/sh")
    (source / "run.sh").chmod(0o755)
    (source / "link").symlink_to("pkg/train.py")
    (source / "pkg" / "up").symlink_to("../run.sh")
    os.link(source / "run.sh", source / "same.sh")
    for kind in ("w:gz", "w:xz", "w:bz2", "w"):
        for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
            with tarfile.open(tmp_path / "archive", kind, format=form) as tar:
                tar.add(source, ".")
            into = tmp_path / f"{kind[2:]}-{form}"
            into.mkdir()
            unpack(tmp_path / "archive", into, "s3://b/code")
            for found in source.rglob("*"):
                copy = into / found.relative_to(source)
                assert copy.is_symlink() == found.is_symlink() and copy.is_dir() == found.is_dir()
                assert found.is_dir() or (copy.read_bytes() == found.read_bytes() and os.access(copy, os.X_OK) == os.access(found, os.X_OK))
            assert os.readlink(into / "link") == "pkg/train.py"


def test_the_hash_of_another_object_is_not_told(tmp_path: Path) -> None:
    """A spec that names any object as its code would learn its hash, and with it could have it unpacked."""
    content = packed(a_file(content=b"of another project"))
    cache = CodeCache(tmp_path / "cache", lambda _: [content], keep_bytes=MIB)
    with pytest.raises(NotLaunchableError) as refused:
        cache.unpack(CodeArchive(uri="s3://b/mlflow/other", sha256="0" * 64), tmp_path / "code")
    assert hashlib.sha256(content).hexdigest() not in str(refused.value)
    assert not list((tmp_path / "cache").iterdir())


def test_of_its_own_bucket_the_agent_fetches_code_alone() -> None:
    from trainhouse.checkpointing.settings import StoreSettings
    from trainhouse.workers.agent.main import fetch_of

    fetch = fetch_of(StoreSettings(bucket="b", endpoint="http://127.0.0.1:1"))
    for uri in ("s3://b/jobs/j/commits/0000000000", "s3://b/mlflow/x", "s3://b/archive/x", "s3://b/code", "file:///etc/passwd"):
        with pytest.raises(NotLaunchableError):
            list(fetch(uri))


def test_a_fresh_archive_takes_one_member_more_than_once(tmp_path: Path) -> None:
    raw = io.BytesIO(packed(a_file("a", b"1"), a_file("a", b"2")))
    (tmp_path / "archive").write_bytes(raw.getvalue())
    (tmp_path / "out").mkdir()
    unpack(tmp_path / "archive", tmp_path / "out", "x")
    assert (tmp_path / "out" / "a").read_bytes() == b"2"
