"""Ends what tests share after the last of them that asks for it: a whole stack that idles takes a part of a core from those who come after.

A session's fixture ends with the run alone, and one of a package needs `__init__.py`, which tests do not have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class _Shared:
    fixture: str
    folder: Path
    end: Callable[[], None]

    def used_by(self, item: pytest.Item) -> bool:
        return self.fixture in getattr(item, "fixturenames", ()) and item.path.is_relative_to(self.folder)


_shared: list[_Shared] = []


def end_after_last_use(request: pytest.FixtureRequest, folder: Path, end: Callable[[], None]) -> None:
    """Calls `end` once no later test of `folder` names the fixture that asks for this. The fixture ends it too: a run may stop before."""
    assert request.fixturename is not None
    _shared.append(_Shared(request.fixturename, folder, end))


def after(item: pytest.Item) -> None:
    """To be called when a test and the fixtures that end with it are torn down."""
    if not _shared:
        return
    later = item.session.items[item.session.items.index(item) + 1 :]
    for shared in [each for each in _shared if not any(map(each.used_by, later))]:
        _shared.remove(shared)
        shared.end()
