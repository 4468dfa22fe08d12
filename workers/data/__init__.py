"""Training data: the order of samples as a function of the seed, and the loader over it.

Holds: the order depends on nothing but the seed, the sizes and the position: not on ranks, layout, worker processes, kills or resumes.
Importing anything below here without the loader imports no torch; errors and manifests, which agents read, no NumPy either.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trainhouse.workers.data.errors import DamagedShardError, InvalidDataError

if TYPE_CHECKING:
    from trainhouse.workers.data.data_loader import Loader, Mixture
    from trainhouse.workers.data.order import Blocks
    from trainhouse.workers.data.published_data import open_folder

__all__ = ["Blocks", "DamagedShardError", "InvalidDataError", "Loader", "Mixture", "open_folder"]
_PLACES = {"Blocks": "order", "Loader": "data_loader", "Mixture": "data_loader", "open_folder": "published_data"}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
