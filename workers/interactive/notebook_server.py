"""Jupyter of a session, on a Unix socket in a folder of its own: no port is opened.

Holds: its token is made for this session. Which of its pages there are, is looked up in the job's Python.
"""

import asyncio
import importlib.util
import os
import secrets
import signal
import sys
import tempfile
from pathlib import Path
from typing import Final

_PAGES: Final = (("jupyterlab", "/lab"), ("notebook", "/tree"), ("jupyter_server", "/"))
HOSTS: Final = ("localhost", "notebook.localhost")
"""Beside addresses of loopback; the second is that of `trainhouse notebook`."""
NONE: Final = (
    "there is no Jupyter in this job's Python ({python}): install jupyterlab or notebook there, or name another one by --interpreter"
)


class NoJupyterError(Exception):
    """There is no Jupyter in this Python."""


class NotebookServer:
    """One server of a session."""

    def __init__(self) -> None:
        """Raises NoJupyterError."""
        found = next(((name, page) for name, page in _PAGES if importlib.util.find_spec(name)), None)
        if found is None:
            raise NoJupyterError(NONE.format(python=sys.executable))
        self._module, self.page = found
        self.token = secrets.token_hex(24)
        # A path of a socket has 107 bytes at most, so it lies in no folder of the attempt.
        self._folder = Path(tempfile.mkdtemp(prefix="jupyter-"))
        self.socket = self._folder / "http.sock"

    async def start(self) -> asyncio.subprocess.Process:
        """Starts it. Raises OSError."""
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", self._module, "--no-browser"),
            *(f"--ServerApp.sock={self.socket}", f"--ServerApp.root_dir={os.getcwd()}"),
            *(f"--ServerApp.local_hostnames={name}" for name in HOSTS),
            *(["--allow-root"] if os.getuid() == 0 else []),
            env={**os.environ, "JUPYTER_TOKEN": self.token},
            start_new_session=True,
            preexec_fn=_default_signals,
        )

    def is_up(self) -> bool:
        """Whether its socket is there."""
        return self.socket.exists()


def _default_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
