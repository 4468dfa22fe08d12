"""The order in which a stack starts: servers, then accounts, topics and pool, then everything else; each until it answers.

Always: a part that keeps ending stops the start with the last lines of its log.  Never: a wait without an end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from trainhouse.deploy.local import client_config
from trainhouse.deploy.local.bootstrap import POOL, prepare_bus
from trainhouse.deploy.local.errors import NotReadyError
from trainhouse.deploy.local.layout import StackFolder, StackPorts, endpoint
from trainhouse.deploy.local.servers import certificates
from trainhouse.deploy.local.servers.seaweedfs import StoreKeys
from trainhouse.deploy.local.servers.server_process import Server, tail
from trainhouse.deploy.local.supervision import readiness, stack_parts, supervisor_client
from trainhouse.deploy.local.supervision.supervisor_config import log_file
from trainhouse.events.bus.accounts import secure

# Much more than a machine needs that is not overloaded: a part that keeps ending stops the start at once, a slow one may take its time.
READY_TIMEOUT_S = 300.0
MAX_RESTARTS = 3
GROUPS = ("intake", "scheduler", "detector", "tuner")
# `alerts` is not waited for: no job needs it, and it waits for the others itself.
POLL_S = 0.05


class Startup:
    """One start of one stack."""

    def __init__(self, folder: StackFolder, ports: StackPorts, keys: StoreKeys, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._ports = ports
        self._say = say
        self._began = time.monotonic()
        # How often parts had died before this start began.
        self._died: dict[str, int] = {}
        self._kafka = stack_parts.kafka_server(folder, ports)
        self._store = stack_parts.store_server(folder, ports, keys)
        self._settings = self._kafka.own_client
        self.servers: list[Server] = [self._kafka, self._store]
        self.parts = stack_parts.all_parts(folder, ports, keys)

    def run(self) -> None:
        """Start everything in order; blocks; NotReadyError if a part does not get there."""
        self._start(stack_parts.SERVERS)
        with ThreadPoolExecutor(1) as pool:  # while the servers start, and are prepared
            loaded = pool.submit(supervisor_client.load, self._folder)
            self._wait({"kafka": self._kafka.answers}, supervisor_answers=loaded.done)
            client_config.forget_old_broker(self._folder)
            secure(self._settings, client_config.passwords(self._folder))
            prepare_bus(self._settings)
        loaded.result()
        self._start(stack_parts.PROCESSORS)
        checks = self._processor_checks()
        tables = {stack_parts.PROJECTOR: checks.pop(stack_parts.PROJECTOR)}
        self._wait({**checks, "store": self._store.answers})
        # Once it runs, its launcher loads torch, which takes a core for seconds. No job needs the tables to start, and the projector makes
        # them on one core: the agent takes the other meanwhile.
        agent = {stack_parts.AGENT: readiness.node_answered(self._settings)}
        self._start((stack_parts.AGENT,))
        self._wait({**tables, **agent})

    def restart(self, names: tuple[str, ...]) -> None:
        """Start parts again in this order, as they are configured now, and wait until all of them answer; blocks.

        The agent is killed for it, not stopped: its ranks go on, and the next one adopts them. NotReadyError if one does not get there.
        """
        self._died = {each.name: each.restarts for each in supervisor_client.states(self._folder)}
        if "kafka" in names:
            self._again("kafka")
            self._wait({"kafka": self._kafka.answers})
            client_config.forget_old_broker(self._folder)
        mine = [name for name in names if name != "kafka"]
        for name in mine:
            self._again(name)
        # That a process serves its figures says that it read its settings; what it then waits for is the brokers' to say.
        checks = {part.name: readiness.answers(part.metrics) for part in self.parts if part.metrics} | {"gateway": self._gateway_answers()}
        self._wait({name: checks[name] for name in mine if name in checks})

    def _again(self, name: str) -> None:
        part = next(part for part in self.parts if part.name == name)
        if name == stack_parts.AGENT:
            self._died[name] = self._died.get(name, 0) + 1
            supervisor_client.replace(self._folder, part.group, name)
        else:
            supervisor_client.stop(self._folder, part.group, name)
            supervisor_client.start(self._folder, part.group, name)

    def _processor_checks(self) -> dict[str, readiness.Check]:
        groups = {name: readiness.group(self._settings, f"trainhouse-{name}") for name in GROUPS}
        return {
            **groups,
            "intake": readiness.both(groups["intake"], readiness.pool_known(self._settings, str(POOL))),
            "projector": readiness.clickhouse(endpoint(self._ports.clickhouse, "http")),
            "gateway": self._gateway_answers(),
        }

    def _gateway_answers(self) -> readiness.Check:
        return readiness.answers(
            f"{certificates.gateway_url(self._folder, self._ports.gateway)}/healthz", certificates.context(self._folder)
        )

    def _start(self, names: tuple[str, ...]) -> None:
        for part in self.parts:
            if part.name in names:
                supervisor_client.start(self._folder, part.group, part.name)

    def _wait(self, checks: Mapping[str, readiness.Check], supervisor_answers: Callable[[], bool] = lambda: True) -> None:
        pending = dict(checks)
        deadline = time.monotonic() + READY_TIMEOUT_S
        while pending:
            for name in [name for name, check in pending.items() if check()]:
                del pending[name]
                self._report(name)
                deadline = time.monotonic() + READY_TIMEOUT_S  # a busy machine is slow, but it gets on
            if pending and supervisor_answers():
                self._refuse_dying(set(pending))
            if pending and time.monotonic() > deadline:
                name = next(iter(pending))
                raise NotReadyError(f"{name} did not answer, and nothing else got on for {READY_TIMEOUT_S:g} s:\n{self._words(name)}")
            time.sleep(POLL_S)

    def _report(self, name: str) -> None:
        address = next(part.address for part in self.parts if part.name == name)
        self._say(f"{name:<10} ready after {time.monotonic() - self._began:4.1f} s  {address}".rstrip())

    def _refuse_dying(self, names: set[str]) -> None:
        for each in supervisor_client.states(self._folder):
            if each.name in names and each.restarts - self._died.get(each.name, 0) >= MAX_RESTARTS:
                raise NotReadyError(f"{each.name} keeps ending:\n{self._words(each.name)}")

    def _words(self, name: str) -> str:
        path = log_file(self._folder, name)
        return f"{tail(path)}\nThe whole log: {path}"
