"""The S3 server's other ports, tried by another user of the machine: nothing is read, written or deleted there."""

from __future__ import annotations

import http.client
import re
import ssl
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import grpc
import pytest

from tests.security.stranger import as_stranger, needs_root
from trainhouse.deploy.local.errors import NotReadyError
from trainhouse.deploy.local.free_ports import LOOPBACK
from trainhouse.deploy.local.servers import seaweedfs_security
from trainhouse.deploy.local.servers.seaweedfs import StoreServer

pytestmark = [pytest.mark.stack, needs_root]
ORIGIN = {"Origin": "http://elsewhere.example"}
BODY = b"the stranger's"
FILER = [
    ("GET", "/"),
    ("GET", "/buckets/trainhouse/kept"),
    ("HEAD", "/buckets/trainhouse/kept"),
    ("GET", "/buckets/?limit=100"),
    ("GET", "/?proxyChunkId={fid}"),
    ("GET", "/etc/iam/identity.json"),
    ("PUT", "/buckets/trainhouse/kept"),
    ("PUT", "/buckets/trainhouse/added"),
    ("POST", "/buckets/trainhouse/kept?mv.from=/buckets/trainhouse/other"),
    ("POST", "/.tus/buckets/trainhouse/added"),
    ("PUT", "/buckets/trainhouse/kept?tagging"),
    ("DELETE", "/buckets/trainhouse/kept"),
    ("DELETE", "/buckets/trainhouse?recursive=true&ignoreRecursiveError=true"),
    ("DELETE", "/?recursive=true"),
    ("OPTIONS", "/buckets/trainhouse/kept"),
]
MASTER = [
    ("GET", "/"),
    ("GET", "/ui/index.html"),
    ("GET", "/dir/assign"),
    ("GET", "/dir/lookup?volumeId={vid}"),
    ("GET", "/dir/status"),
    ("GET", "/vol/status"),
    ("GET", "/vol/grow?count=1"),
    ("GET", "/vol/vacuum?garbageThreshold=0"),
    ("GET", "/col/delete?collection=trainhouse"),
    ("POST", "/submit"),
    ("GET", "/cluster/status"),
    ("GET", "/{fid}"),
]
VOLUME = [
    ("GET", "/{fid}"),
    ("HEAD", "/{fid}"),
    ("PUT", "/{fid}"),
    ("POST", "/{fid}?type=replicate"),
    ("DELETE", "/{fid}"),
    ("DELETE", "/{fid}?type=replicate"),
    ("GET", "/ui/index.html"),
    ("GET", "/admin/assign_volume?volume=9"),
    ("GET", "/admin/volume/delete?volume={vid}"),
    ("GET", "/stats/counter"),
    ("GET", "/status"),
    ("POST", "/status"),
]
S3 = [
    ("GET", "/"),
    ("GET", "/trainhouse/kept"),
    ("PUT", "/trainhouse/kept"),
    ("DELETE", "/trainhouse/kept"),
    ("DELETE", "/trainhouse"),
    ("POST", "/trainhouse?delete"),
    ("GET", "/trainhouse?list-type=2"),
    ("PUT", "/another"),
    ("POST", "/?Action=CreateAccessKey&UserName=trainhouse"),
    ("OPTIONS", "/trainhouse/kept"),
]
HTTP = [("filer", *row) for row in FILER] + [("master", *row) for row in MASTER] + [("volume", *row) for row in VOLUME]
HTTP += [("s3", *row) for row in S3]
GRPC = [
    ("filer", "filer_pb.SeaweedFiler/GetFilerConfiguration"),
    ("filer", "filer_pb.SeaweedFiler/ListEntries"),
    ("filer", "filer_pb.SeaweedFiler/DeleteEntry"),
    ("filer", "filer_pb.SeaweedFiler/CreateEntry"),
    ("filer", "filer_pb.SeaweedFiler/KvPut"),
    ("filer", "filer_pb.SeaweedFiler/DeleteCollection"),
    ("master", "master_pb.Seaweed/Assign"),
    ("master", "master_pb.Seaweed/VolumeList"),
    ("master", "master_pb.Seaweed/CollectionDelete"),
    ("master", "master_pb.Seaweed/LeaseAdminToken"),
    ("volume", "volume_server_pb.VolumeServer/VolumeServerStatus"),
    ("volume", "volume_server_pb.VolumeServer/DeleteCollection"),
    ("volume", "volume_server_pb.VolumeServer/BatchDelete"),
    ("volume", "volume_server_pb.VolumeServer/ReadAllNeedles"),
    ("s3", "messaging_pb.SeaweedS3IamCache/PutIdentity"),
    ("s3", "s3_pb.SeaweedS3/Configure"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    with StoreServer(tmp_path_factory.mktemp("store")) as server:
        server.client().put_object(Bucket=server.bucket, Key="kept", Body=b"kept")
        yield server


@pytest.fixture(scope="module")
def fid(store: StoreServer) -> str:
    """A chunk's id, from the master, by the certificate of the server's own roles: what a stranger might have guessed."""
    reply = by_grpc(store, "master", "master_pb.Seaweed/Assign", "roles")
    found = re.search(rb"\d+,[0-9a-f]{8,}", reply)
    assert found, reply
    return found.group().decode()


def port_of(store: StoreServer, role: str, grpc_port: bool = False) -> int:
    return int(asdict(store.ports)[f"{role}_grpc" if grpc_port else role])


def by_http(store: StoreServer, role: str, method: str, path: str, tls: bool) -> tuple[int, str, bytes]:
    """Status, the origins that may read it, and body; (0, "", b"") where the connection is refused."""
    port = port_of(store, role)
    plain = http.client.HTTPConnection(LOOPBACK, port, timeout=20)
    secured = http.client.HTTPSConnection(LOOPBACK, port, timeout=20, context=ssl._create_unverified_context())
    connection = secured if tls else plain
    try:
        connection.request(method, path, body=BODY if method in ("PUT", "POST") else None, headers=ORIGIN)
        reply = connection.getresponse()
        return reply.status, reply.getheader("Access-Control-Allow-Origin") or "", reply.read()
    except (OSError, http.client.HTTPException):
        return 0, "", b""
    finally:
        connection.close()


def by_grpc(store: StoreServer, role: str, method: str, how: str) -> bytes:
    """The reply to an empty request; raises grpc.RpcError. `how`: "plain", "tls", or "roles" with the roles' certificate."""
    address = f"{LOOPBACK}:{port_of(store, role, grpc_port=True)}"
    if how == "plain":
        channel = grpc.insecure_channel(address)
    else:
        shown = (store.doors_folder / "roles.crt").read_bytes() if how == "roles" else ssl.get_server_certificate(split(address)).encode()
        key = (store.doors_folder / "roles.key").read_bytes() if how == "roles" else None
        credentials = grpc.ssl_channel_credentials(shown, key, shown if key else None)
        channel = grpc.secure_channel(address, credentials, [("grpc.ssl_target_name_override", "localhost")])
    with channel:
        call = channel.unary_unary(f"/{method}", request_serializer=bytes, response_deserializer=bytes)
        return bytes(call(b"", timeout=60))


def split(address: str) -> tuple[str, int]:
    host, _, port = address.partition(":")
    return host, int(port)


def test_another_user_reads_writes_and_deletes_nothing_by_http(store: StoreServer, fid: str) -> None:
    names = {"fid": fid, "vid": fid.partition(",")[0]}

    def probes() -> list[tuple[str, str, str, bool, tuple[int, str, bytes]]]:
        return [(*row, tls, by_http(store, row[0], row[1], row[2].format(**names), tls)) for row in HTTP for tls in (False, True)]

    found = as_stranger(probes)
    assert len(found) == 2 * len(HTTP)
    let_in = [row for row in found if 200 <= row[-1][0] < 400 and row[1] != "OPTIONS"]
    assert let_in == []
    # A page of another origin gets to see that it was refused, and nothing else.
    assert [row for row in found if b"kept" in row[-1][2] and row[0] != "s3"] == []
    client = store.client()
    assert client.get_object(Bucket=store.bucket, Key="kept")["Body"].read() == b"kept"
    assert "added" not in [each["Key"] for each in client.list_objects_v2(Bucket=store.bucket)["Contents"]]


def test_no_page_of_another_origin_may_send_anything(store: StoreServer) -> None:
    asked = [(role, by_http(store, role, "OPTIONS", "/buckets/trainhouse/kept", tls=False)) for role in ("filer", "master", "s3")]
    assert [row for row in asked if row[1][1]] == []


def test_another_user_calls_nothing_by_grpc(store: StoreServer) -> None:
    def probes() -> list[tuple[str, str, str, str]]:
        answers = []
        for role, method in GRPC:
            for how in ("plain", "tls"):
                try:
                    answers.append((role, method, how, f"answered: {by_grpc(store, role, method, how)!r}"))
                except grpc.RpcError as error:
                    answers.append((role, method, how, error.code().name))
                except OSError as error:  # no certificate is shown to whom has none
                    answers.append((role, method, how, type(error).__name__))
        return answers

    found = as_stranger(probes)
    assert len(found) == 2 * len(GRPC)
    # Refused before the call was read: a wrong argument or an unknown method would be another answer.
    assert [row for row in found if row[3] not in ("UNAVAILABLE", "SSLError", "ConnectionResetError", "SSLEOFError")] == []


def test_the_roles_of_the_server_are_answered(store: StoreServer) -> None:
    assert by_grpc(store, "filer", "filer_pb.SeaweedFiler/GetFilerConfiguration", "roles")
    assert by_grpc(store, "master", "master_pb.Seaweed/VolumeList", "roles")


def test_another_user_reads_no_key_and_enters_no_socket(store: StoreServer) -> None:
    import socket

    files = [store.config_file, *sorted(store.doors_folder.iterdir())]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert {path.name for path in files} >= {"s3.json", "security.toml", "roles.key"}
    sockets = list(store._sockets())
    assert all(path.exists() for path in sockets)

    def enter() -> list[str]:
        opened = []
        for path in sockets:
            try:
                socket.socket(socket.AF_UNIX).connect(str(path))
                opened.append(str(path))
            except PermissionError:
                continue
        return opened

    assert as_stranger(enter) == []


def test_no_key_is_in_the_arguments_of_the_process(store: StoreServer) -> None:
    words = " ".join(store.command())
    assert store.secret_key not in words
    keys = re.findall(r'key = "([^"]{30,})"', (store.doors_folder / "security.toml").read_text())
    assert len(keys) >= 4
    assert not any(key in words for key in keys)


def test_a_socket_that_another_user_put_there_first_is_refused(tmp_path: Path) -> None:
    server = StoreServer(tmp_path / "store")
    taken = next(server._sockets())

    as_stranger(taken.touch)
    try:
        with pytest.raises(NotReadyError, match=re.escape(str(taken))):
            server.prepare()
    finally:
        taken.unlink()


def test_each_start_has_keys_of_its_own(tmp_path: Path) -> None:
    seaweedfs_security.write_doors(tmp_path / "doors")
    first = (tmp_path / "doors" / "security.toml").read_text()
    seaweedfs_security.write_doors(tmp_path / "doors")
    assert (tmp_path / "doors" / "security.toml").read_text() != first
