"""Gloo processes, four unless asked otherwise, on one in-memory store: gangs of any size up to that, for tests of layouts.

Holds: the processes start once, forked from one that has imported the test; a gang is a group of the first so many of them; a manager
process serves one store to all.
"""

import datetime
import gc
import multiprocessing as mp
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.support.fakes.memory_store import MemoryObjectStore
from trainhouse.checkpointing.stores.object_store import Body

WORLD = 4
MOST_S = 1800.0  # until the first of the processes is done, on a machine that has much else to do
_KEY = b"gloo-gang"
Groups = dict[int, dist.ProcessGroup | None]
Work = Callable[[Any, Groups], dict[Any, Any]]
Serve = Callable[[Any, Groups, Any], dict[Any, Any]]
Ask = Callable[..., list[dict[Any, Any]]]
_the_store = MemoryObjectStore()


class Stores(BaseManager):
    """Server of one store to all processes."""


def the_store() -> MemoryObjectStore:
    """Returns the manager's store: the same for all callers."""
    return _the_store


Stores.register("store", the_store, exposed=("uri", "put", "put_if_absent", "get", "get_range", "stat", "list", "delete"))


class SharedStore:
    """The manager's store, as one process sees it."""

    address = "memory"

    def __init__(self, proxy: Any) -> None:
        self._proxy = proxy

    def put(self, key: str, body: Body) -> None:
        self._proxy.put(key, bytes(body))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._proxy, name)


def run_gang(work: Work, folder: Path, preload: str, world: int = WORLD, most_s: float = MOST_S) -> list[dict[Any, Any]]:
    """Runs `work(store, groups)` in all processes and returns its results by rank.

    `groups`: by size, the group of that many ranks; None for a process that is not one of them. `preload`: the module of `work`.
    """
    with serving_gang(_Once(work), folder, preload, world) as ask:
        return ask(None, most_s)


@contextmanager
def serving_gang(serve: Serve, folder: Path, preload: str, world: int = WORLD) -> Iterator[Ask]:
    """Yields a function that runs `serve(store, groups, example)` in all processes and returns the results by rank, any number of times.

    A process that raised is not to be asked again: the others may still wait for it.
    """
    start = mp.get_context("forkserver")
    start.set_forkserver_preload([preload, "torch.distributed.checkpoint.state_dict_loader"])
    with Stores(address=str(folder / "manager"), authkey=_KEY, ctx=start) as manager:
        results, examples = start.Queue(), [start.Queue() for _ in range(world)]
        arguments = (world, serve, str(folder), manager.address, results)
        ranks = [start.Process(target=_one_process, args=(rank, *arguments, examples[rank]), daemon=True) for rank in range(world)]
        for process in ranks:
            process.start()

        def ask(example: Any, most_s: float = MOST_S) -> list[dict[Any, Any]]:
            for queue in examples:
                queue.put((example,))
            said: dict[int, Any] = {}
            for _ in ranks:
                rank, answer = results.get(timeout=most_s)
                assert isinstance(answer, dict), answer
                said[rank] = answer
            return [said[rank] for rank in range(world)]

        try:
            yield ask
            for queue in examples:
                queue.put(None)
            for process in ranks:
                process.join(60)
        finally:
            for process in ranks:
                process.kill()


class _Once:
    """Work without an example."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __call__(self, store: Any, groups: Groups, example: Any) -> dict[Any, Any]:
        return self._work(store, groups)


def _one_process(rank: int, world: int, serve: Serve, folder: str, address: Any, results: Any, examples: Any) -> None:
    """Serves examples in one of the processes until there are no more."""
    gc.freeze()  # a look for cycles would copy all that was imported before the fork
    try:
        os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])  # an upload process that is no fork finds the tests' stores
        torch.set_num_threads(1)
        timeout = datetime.timedelta(seconds=120)
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world, timeout=timeout)
        manager = Stores(address=address, authkey=_KEY)
        manager.connect()
        store = SharedStore(manager.store())  # type: ignore[attr-defined]
        groups: dict[int, Any] = {n: dist.new_group(list(range(n)), timeout=timeout) for n in range(1, world + 1)}
        groups = {n: group if rank < n else None for n, group in groups.items()}
        while (example := examples.get()) is not None:
            results.put((rank, serve(store, groups, example[0])))
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        results.put((rank, traceback.format_exc()))
