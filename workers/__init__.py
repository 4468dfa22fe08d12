"""Programs of a node: the agent, the launcher, the session that training code uses, example programs.

Holds: `from trainhouse.workers import Session` works; importing anything below here without the session imports no torch.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainhouse.workers.session import Session

__all__ = ["Session"]


def __getattr__(name: str) -> Any:
    if name == "Session":
        from trainhouse.workers.session import Session

        return Session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
