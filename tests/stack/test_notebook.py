"""A real notebook against a running stack: a job shown live in one display, a cell that awaits, a cell that is interrupted."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tests.support.stack.live_stack import LiveStack

WAIT_S = 480
TRAIN = """
import time
import torch
from trainhouse.workers import Session
session = Session.start()
model = torch.nn.Linear(2, 1)
session.track(model=model)
for step in session.steps(20, save_every_steps=10):
    session.log(loss=1 / (step + 1))
    time.sleep(0.1)
"""
SLEEP = "import time; print('up', flush=True); time.sleep(3600)"
# A reader ends with the next thing that it hears, and a gateway says every 10 s that it lives.
READERS_END = """
import threading
for reader in [t for t in threading.enumerate() if "trainhouse" in t.name]:
    reader.join(60)
    assert not reader.is_alive(), reader.name
"""
LATEST = "display_data", "update_display_data"


@dataclass
class Shown:
    """What a cell showed, message by message: (kind, id of the display, forms)."""

    messages: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)

    @property
    def last(self) -> str:
        """The newest form for people."""
        return self.messages[-1][2]["text/html"] if self.messages else ""


class Kernel(NotebookClient):  # type: ignore[misc]
    """Runs cells, and keeps what they showed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(nbformat.v4.new_notebook(), timeout=WAIT_S, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
        self.shown = Shown()

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        if msg["msg_type"] in LATEST:
            content = msg["content"]
            self.shown.messages.append((msg["msg_type"], content.get("transient", {}).get("display_id", ""), content["data"]))
        return super().process_message(msg, cell, cell_index)

    async def run(self, source: str) -> Any:
        """The cell after it ran. Raises CellExecutionError."""
        self.shown = Shown()
        cell = nbformat.v4.new_code_cell(source)
        self.nb.cells.append(cell)
        return await self.async_execute_cell(cell, len(self.nb.cells) - 1)

    async def interrupted(self, source: str, ready: Callable[[Shown], bool]) -> str:
        """Runs a cell until it is ready, and interrupts it there; the name of the error that it ended with."""
        running = asyncio.create_task(self.run(source))
        await asyncio.sleep(0)
        while not ready(self.shown):
            assert not running.done(), running.exception()
            await asyncio.sleep(0.05)
        await self.km.interrupt_kernel()
        with pytest.raises(CellExecutionError) as ended:
            await running
        return str(ended.value.ename)


def text_of(cell: Any) -> str:
    """What a cell printed, and what its last line gave."""
    said = [o for o in cell.outputs if o.output_type != "display_data" and o.get("name") != "stderr"]
    return "".join(o.get("text", "") or o.get("data", {}).get("text/plain", "") for o in said)


def settings_of(stack: LiveStack, way: str) -> dict[str, str]:
    """The environment of a program beside the stack, or of a laptop that has the gateway alone."""
    told = dict(line.removeprefix("export ").split("=", 1) for line in stack.ok("env").splitlines())
    found = {name: value.strip("'\"") for name, value in told.items()}
    return found if way == "kafka" else {name: value for name, value in found.items() if name.startswith("TRAINHOUSE_GATEWAY_")}


@asynccontextmanager
async def kernel_in(folder: Path, settings: dict[str, str]) -> AsyncIterator[Kernel]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TRAINHOUSE_")}
    kernel = Kernel(folder)
    async with kernel.async_setup_kernel(env=clean | settings | {"IPYTHONDIR": str(folder / "ipython")}):
        yield kernel


@pytest.fixture(scope="module", params=["kafka", "gateway"])
def notebook(
    request: pytest.FixtureRequest, stack: LiveStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Callable[[Kernel], Awaitable[None]]], None]]:
    """Plays scenes in a kernel that knows one way to the stack."""
    folder = tmp_path_factory.mktemp("notebook")
    with pytest.MonkeyPatch.context() as environment, asyncio.Runner() as runner:
        environment.setenv("JUPYTER_RUNTIME_DIR", str(folder / "runtime"))
        life = kernel_in(folder, settings_of(stack, request.param))
        kernel = runner.run(life.__aenter__())
        try:
            begin = f"from trainhouse.client import AsyncClient, connect\nclient = connect()\nTRAIN, SLEEP = {TRAIN!r}, {SLEEP!r}"
            runner.run(kernel.run(begin))
            yield lambda scene: runner.run(scene(kernel))
        finally:
            runner.run(life.__aexit__(None, None, None))


def test_a_job_is_shown_live_in_one_display(notebook: Callable[[Callable[[Kernel], Awaitable[None]]], None]) -> None:
    async def scene(kernel: Kernel) -> None:
        await kernel.run("job = client.submit(command=['python', '-c', TRAIN], name='notebook', limits={'restarts': 0})")
        cell = await kernel.run("ended = job.wait(progress=True)\nended.state.value")
        kinds, ids, forms = zip(*kernel.shown.messages, strict=True)
        assert kinds == ("display_data", *["update_display_data"] * (len(kinds) - 1)) and len(kinds) > 3 and len(set(ids)) == 1 and ids[0]
        assert "no status yet" in forms[0]["text/html"] and any("RUNNING" in form["text/html"] for form in forms)
        # The notebook as it is saved: one display, with how it ended.
        (display,) = [output for output in cell.outputs if output.output_type == "display_data"]
        assert display.data["text/html"] == forms[-1]["text/html"]
        assert "SUCCEEDED" in display.data["text/html"] and 'aria-valuenow="20"' in display.data["text/html"]
        assert "SUCCEEDED" in display.data["text/plain"] and "<" not in display.data["text/plain"]
        assert text_of(cell) == "'SUCCEEDED'"
        points = await kernel.run(
            "t = job.metrics('loss').to_pandas(); (t['step'].tolist() == list(range(20)), float(t['value'].iloc[-1]))"
        )
        assert text_of(points) == "(True, 0.05)", text_of(points)
        card = await kernel.run("job")
        assert "SUCCEEDED" in card.outputs[0].data["text/html"]

    notebook(scene)


def test_a_cell_awaits_at_top_level(notebook: Callable[[Callable[[Kernel], Awaitable[None]]], None]) -> None:
    async def scene(kernel: Kernel) -> None:
        cell = await kernel.run(
            """
import asyncio
ticks = []
async def tick():
    while True:
        ticks.append(1)
        await asyncio.sleep(0.01)
ticking = asyncio.create_task(tick())
asynchronous = AsyncClient.connect()
job = await asynchronous.submit(command=["python", "-c", TRAIN], name="notebook-async", limits={"restarts": 0})
ended = await job.wait()
ticking.cancel()
print(ended.state.value, len(ticks) > 50, (await job.metrics("loss")).num_rows)
await asynchronous.aclose()
"""
        )
        assert text_of(cell) == "SUCCEEDED True 20\n"

    notebook(scene)


def test_an_interrupted_cell_leaves_the_job_and_says_so(notebook: Callable[[Callable[[Kernel], Awaitable[None]]], None]) -> None:
    async def scene(kernel: Kernel) -> None:
        await kernel.run(
            "job = client.submit(command=['python', '-c', SLEEP], name='notebook-sleep', limits={'restarts': 0, 'grace_s': 1})"
        )
        assert (
            await kernel.interrupted("job.watch()", lambda shown: "RUNNING" in shown.last or "INITIALIZING" in shown.last)
            == "KeyboardInterrupt"
        )
        assert "no longer followed; the job goes on" in kernel.shown.last
        assert text_of(await kernel.run(f"{READERS_END}\njob.status().state.final")) == "False"
        await kernel.run("asynchronous = AsyncClient.connect(); waiting = asynchronous.job(job.job_id)")
        with pytest.raises(CellExecutionError) as late:
            await kernel.run("await waiting.wait(1)")
        assert late.value.ename == "TimeoutError" and job_is_named(late.value)
        begun = "from IPython.display import display; display({'text/html': 'begun'}, raw=True); await waiting.wait()"
        assert await kernel.interrupted(begun, lambda shown: "begun" in shown.last) in ("KeyboardInterrupt", "CancelledError")
        cell = await kernel.run("await waiting.cancel('enough'); ended = await waiting.wait(); ended.state.value, 'enough' in ended.reason")
        assert text_of(cell) == "('CANCELLED', True)"
        assert text_of(await kernel.run("job.watch(10).state.value")) == "'CANCELLED'" and "CANCELLED" in kernel.shown.last

    notebook(scene)


def job_is_named(error: CellExecutionError) -> bool:
    return "notebook-sleep" in str(error.evalue)
