"""What can be wrong before a stack starts: each has an error that names the thing and the way out, and starts nothing."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from trainhouse.deploy.local import client_config, stack, stack_state
from trainhouse.deploy.local.errors import DiskFullError, FolderUnusableError, JarsMissingError, NotRunningError, PortBusyError
from trainhouse.deploy.local.free_ports import LOOPBACK, free_port
from trainhouse.deploy.local.layout import BASE_PORT, COUNT, Choices, StackFolder, StackPorts
from trainhouse.deploy.local.servers import jars
from trainhouse.deploy.local.servers.seaweedfs import StoreKeys
from trainhouse.deploy.local.socket_folder import runtime_dir


def test_a_busy_port_is_named_with_its_holder(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        ports = StackPorts((*StackPorts.free().numbers[:-1], port))
        with pytest.raises(PortBusyError, match=rf"port {port}.*pid \d+.*--ports auto"):
            stack.up(tmp_path / "data", ports=ports)


def test_a_full_disk_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(DiskFullError, match=r"MiB free.*--data-dir"):
        stack.up(tmp_path / "data", ports=StackPorts.free(), min_free_bytes=2**60)
    assert not (tmp_path / "data" / "kafka").exists()
    assert stack_state.warnings(tmp_path, min_free_bytes=2**60)
    assert not stack_state.warnings(tmp_path, min_free_bytes=0)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FolderUnusableError, match="--data-dir"):
        stack.up(tmp_path / "file" / "data")


def test_missing_jars_without_network_are_refused_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINHOUSE_CACHE_DIR", str(tmp_path / "cache"))
    for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(variable, f"http://{LOOPBACK}:{free_port()}")
    with pytest.raises(JarsMissingError, match="prefetch"):
        stack.up(tmp_path / "data", ports=StackPorts.free())
    assert jars.cache_dir() == tmp_path / "cache"


@pytest.mark.parametrize("command", [stack.down, stack_state.ps, stack_state.env])
def test_without_a_stack_the_error_says_so(tmp_path: Path, command: object) -> None:
    assert callable(command)
    with pytest.raises(NotRunningError, match="no stack"):
        command(tmp_path)


def test_the_next_up_goes_on_with_what_the_last_one_chose(tmp_path: Path) -> None:
    folder = StackFolder(tmp_path)
    folder.make()
    assert stack.choose(folder, None, None) == Choices(tuple(range(BASE_PORT, BASE_PORT + COUNT)), stack.DEFAULT_SLOTS)
    folder.write_choices(stack.choose(folder, 7, StackPorts.from_base(30_000)))
    assert stack.choose(folder, None, None) == Choices(tuple(range(30_000, 30_000 + COUNT)), 7)
    assert stack.choose(folder, 3, None).slots == 3


def test_the_client_file_is_its_owners_alone_and_keeps_what_a_person_added(tmp_path: Path) -> None:
    folder = StackFolder(tmp_path)
    folder.make()
    folder.client_config.write_text('[agent]\nlabels = {rack = "r1"}\nslots = 9\n[mine]\nx = 1\n')
    keys = client_config.keys_of(folder)
    client_config.write(folder, Choices(StackPorts.from_base(30_000).numbers, 2), keys)
    assert stat.S_IMODE(folder.client_config.stat().st_mode) == 0o600
    assert client_config.keys_of(folder) == keys
    text = folder.client_config.read_text()
    assert 'rack = "r1"' in text and "[mine]" in text and "slots = 2" in text


def test_exports_survive_a_shell(tmp_path: Path) -> None:
    assert client_config.as_shell({"A": "it's $HOME"}) == "export A='it'\"'\"'s $HOME'\n"


def test_keys_are_never_the_same_twice() -> None:
    assert StoreKeys.new() != StoreKeys.new()


def test_a_socket_path_is_short_even_in_a_deep_folder(tmp_path: Path) -> None:
    deep = tmp_path / ("deep" * 50)
    assert len(str(runtime_dir(deep) / "supervisor.sock")) < 100
    runtime_dir(deep).rmdir()
