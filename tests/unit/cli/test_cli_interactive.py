"""Interactive work on this machine's side: keys that detach, lines for ssh, specs of sessions."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from trainhouse.cli.interactive.local_terminal import DetachKeys
from trainhouse.cli.interactive.notebook_command import address_of
from trainhouse.cli.interactive.sessions import COMMAND, Wanted, spec_of
from trainhouse.cli.interactive.ssh_commands import host_block, keys_folder
from trainhouse.cli.shared.exit_codes import CliError
from trainhouse.events import JobSpec
from trainhouse.workers.interactive.notebook_server import HOSTS


@pytest.mark.parametrize(
    ("typed", "passed", "is_detached"),
    [
        ([b"~."], b"", True),
        ([b"ls\r", b"~", b".rest"], b"ls\r", True),
        ([b"ls ~.\r"], b"ls ~.\r", False),
        ([b"\n~~."], b"\n~.", False),
        ([b"~/bin\r~."], b"~/bin\r", True),
        ([b"~\r~."], b"~\r", True),
        ([b"\xc3\xa9~."], b"\xc3\xa9~.", False),
    ],
)
def test_a_tilde_and_a_dot_at_the_beginning_of_a_line_detach(typed: list[bytes], passed: bytes, is_detached: bool) -> None:
    keys, out, detached = DetachKeys(), b"", False
    for piece in typed:
        found, detached = keys.feed(piece)
        out += found
    assert (out, detached) == (passed, is_detached)


def test_lines_for_ssh_hold_for_all_jobs_and_name_the_stack() -> None:
    lines = host_block("/opt/a b/trainhouse", Path("/data/100%"), Path("/home/a b/.config/trainhouse/ssh"))
    assert lines.startswith("Host *.trainhouse\n    User job\n")
    assert "ProxyCommand '/opt/a b/trainhouse' ssh-proxy --data-dir /data/100%% %n %r\n" in lines
    assert 'IdentityFile "/home/a b/.config/trainhouse/ssh/id_ed25519"' in lines and "StrictHostKeyChecking yes" in lines
    assert "--data-dir" not in host_block("trainhouse", None, Path("/k"))


def test_the_user_s_keys_lie_in_the_folder_of_settings() -> None:
    assert keys_folder({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}) == Path("/x/trainhouse/ssh")
    assert keys_folder({"HOME": "/h"}) == Path("/h/.config/trainhouse/ssh")


def test_the_spec_of_a_session() -> None:
    spec = spec_of(Wanted("shell", idle_limit="30m", devices=4, secrets=("TOKEN",)))
    assert spec.runtime.command == COMMAND and spec.interactive is not None and spec.interactive.idle_limit_s == 1800
    assert spec.gang.ranks == 4 and spec.gang.require == "node" and spec.limits.restarts == 0 and spec.secrets == ("TOKEN",)
    with pytest.raises(CliError):
        spec_of(Wanted("shell", idle_limit="soon"))


def test_an_interactive_gang_stays_on_one_node() -> None:
    fields = {"runtime": {"command": ("x",)}, "interactive": {"kind": "notebook"}}
    assert JobSpec.model_validate(fields | {"gang": 1}).interactive is not None
    with pytest.raises(ValueError, match=r"set gang\.require = node"):
        JobSpec.model_validate(fields | {"gang": 2})


def test_a_spec_without_it_has_the_hash_of_before() -> None:
    assert b"interactive" not in JobSpec.model_validate({"runtime": {"command": ("x",)}}).canonical_json()


@pytest.mark.parametrize("page", ["/lab", "/tree", "/"])
def test_a_notebook_s_address_has_a_host_of_its_own_that_gets_no_cookie_of_the_gateway(page: str) -> None:
    found = urlsplit(address_of(8000, "j", {"page": page, "token": "0a" * 24}))
    assert (found.path, found.query, found.port) == (page, f"token={'0a' * 24}", 8000)
    assert found.hostname in HOSTS and found.hostname not in ("localhost", "127.0.0.1")
    assert str(found.hostname).endswith(".localhost")


@pytest.mark.parametrize(
    "about",
    [
        {},
        {"page": "/lab", "token": ""},
        {"page": "/lab", "token": "0a" * 24 + "\n"},
        {"page": "/lab", "token": "x" * 48},
        {"page": "@evil.example/", "token": "0a" * 24},
        {"page": ["/lab"], "token": "0a" * 24},
    ],
)
def test_a_page_or_a_token_that_is_none_of_jupyter_s_is_not_opened(about: dict[str, object]) -> None:
    with pytest.raises(CliError, match="j names a page and token"):
        address_of(8000, "j", about)
