"""Backend of Optuna's JournalStorage over the gateway: its operations as a log that every process of a project shares.

Holds: an append has an id of its own, so that it counts once however often it is sent; a read asks the gateway, which asks the store.
Survives pickling and a fork: connections are made by the process that uses them.
"""

import json
import os
import re
import threading
import uuid
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

import httpx
from optuna.storages.journal import BaseJournalBackend
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from trainhouse.client.errors import InvalidSettingsError, NotReachableError
from trainhouse.client.gateway import transport
from trainhouse.client.gateway.exchange import GatewayAnswer, Request, away, error_of
from trainhouse.events.model.version_names import NAME_PATTERN

LONGEST_WAIT_S: Final = 5.0


class GatewayJournal(BaseJournalBackend):
    """The log of one storage. Each call blocks, and tries for `patience_s` while the gateway does not answer, then raises
    NotReachableError."""

    def __init__(self, url: str, token: str, project: str, name: str, patience_s: float) -> None:
        if not re.fullmatch(NAME_PATTERN, name):
            raise InvalidSettingsError(
                f"{name!r} is no name of a storage: use 1 to 128 letters, digits, '.', '_' or '-', starting with a letter or digit"
            )
        if not project or "/" in project:
            raise InvalidSettingsError(f"{project!r} is no name of a project: it has a slash in it, or is empty")
        transport.settings(url, token)
        self._url, self._token, self._patience_s = url, token, patience_s
        self._path = f"/v1/optuna/{quote(project, safe='')}/{name}/logs"
        self._open()

    def _open(self) -> None:
        self._lock = threading.Lock()
        self._http_of: tuple[int, httpx.Client] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_http_of")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Returns when the store has all of them, in one piece."""
        if logs:
            body = {"lines": [json.dumps(each, separators=(",", ":")) for each in logs]}
            self._ask(Request("POST", self._path, body=body, headers={"Idempotency-Key": uuid.uuid4().hex}))

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """Yields operations from a number on, up to the end that the log had when the last of them was read."""
        first = log_number_from
        while True:
            found = self._ask(Request("GET", self._path, params={"from": first})).json()
            yield from map(json.loads, found["lines"])
            first = found["next"]
            if first >= found["head"]:
                return

    def _ask(self, request: Request) -> GatewayAnswer:
        """One request, again while it may succeed later. Raises ClientError."""
        retrying = Retrying(
            stop=stop_after_delay(self._patience_s),
            wait=wait_random_exponential(multiplier=0.05, max=LONGEST_WAIT_S),
            retry=retry_if_exception_type(NotReachableError),
            reraise=True,
        )
        return retrying(self._once, request)

    def _once(self, request: Request) -> GatewayAnswer:
        try:
            answer = transport.answered(self._http().request(**transport.arguments(request)))
        except httpx.HTTPError as error:
            raise away(self._url, error) from error
        if answer.status == 504:
            raise NotReachableError("the gateway, or something before it, did not answer in time")
        if answer.status >= 300:
            raise error_of(answer)
        return answer

    def _http(self) -> httpx.Client:
        pid = os.getpid()
        with self._lock:
            if self._http_of is None or self._http_of[0] != pid:
                self._http_of = pid, httpx.Client(**transport.settings(self._url, self._token))
            return self._http_of[1]
