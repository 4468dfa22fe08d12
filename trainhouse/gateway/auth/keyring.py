"""The keys of tokens, sessions, codes and `after`: the newest signs, all are taken.

Holds: files of keys are read again when they were changed, so a rotation needs no restart and no token that counts is refused meanwhile;
what says by which key somebody was let in ends with that key. What cannot be read any more leaves the keys that were known.
Never: prints a key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from trainhouse.events.runtime.watched_files import Followed
from trainhouse.gateway.errors import UnknownKeyError
from trainhouse.gateway.settings import GatewaySettings

T = TypeVar("T")


@dataclass(frozen=True)
class Keys:
    """Keys of one moment, the newest first."""

    all: tuple[bytes, ...]

    @property
    def newest(self) -> bytes:
        """Key that signs."""
        return self.all[0]

    @cached_property
    def ids(self) -> frozenset[str]:
        """Their names, which say nothing of them."""
        return frozenset(map(id_of, self.all))

    def read(self, read: Callable[[bytes], T]) -> T:
        """Reads with the key that signed. Raises the errors of `read`, UnknownKeyError where no key fits."""
        for key in self.all[:-1]:
            try:
                return read(key)
            except UnknownKeyError:
                continue
        return read(self.all[-1])


class Keyring:
    """The keys as they are now."""

    def __init__(self, now: Callable[[], Keys]) -> None:
        self._now = now

    @classmethod
    def of(cls, *keys: bytes) -> Keyring:
        """Keys that stay."""
        found = Keys(keys)
        return cls(lambda: found)

    @classmethod
    def of_settings(cls, settings: GatewaySettings) -> Keyring:
        """Keyring of the settings; key files are watched for changes. Raises KeyUnusableError."""
        files = (settings.key_file if settings.key is None else None, settings.accepted_keys_file)
        return cls(Followed([path for path in files if path is not None], lambda: Keys(settings.signing_keys())).now)

    def now(self) -> Keys:
        """The keys."""
        return self._now()


def id_of(key: bytes) -> str:
    """A key's name."""
    return hashlib.sha256(b"trainhouse key id\0" + key).hexdigest()[:16]
