"""Programs of a node: the agent, the launcher, the session that training code uses, example programs.

Holds: `from trainhouse.workers import Session` works; importing anything below here without the session imports no torch.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainhouse.workers.session import Session
    from trainhouse.workers.session.media.values import Audio, Histogram, Image, Table, Text
    from trainhouse.workers.trainers.lightning_plugin import TrainhousePlugin as TrainhousePlugin
    from trainhouse.workers.trainers.transformers_callback import TrainhouseCallback as TrainhouseCallback

_MEDIA = ("Audio", "Histogram", "Image", "Table", "Text")
__all__ = ["Audio", "Histogram", "Image", "Session", "Table", "Text"]


def __getattr__(name: str) -> Any:
    if name == "Session":
        from trainhouse.workers.session import Session

        return Session
    if name in _MEDIA:
        from trainhouse.workers.session.media import values

        return getattr(values, name)
    if name == "TrainhouseCallback":
        _require("TRANSFORMERS", "ACCELERATE")
        from trainhouse.workers.trainers.transformers_callback import TrainhouseCallback

        return TrainhouseCallback
    if name == "TrainhousePlugin":
        _require("LIGHTNING")
        from trainhouse.workers.trainers.lightning_plugin import TrainhousePlugin

        return TrainhousePlugin
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _require(*names: str) -> None:
    """Checks the versions of what is about to be imported."""
    from trainhouse.workers.trainers import libraries

    libraries.require(*(getattr(libraries, name) for name in names))
