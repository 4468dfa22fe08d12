"""State of a Lightning Trainer that is neither model, optimizer nor schedule: loops, callbacks, datamodule, and where its data was.

Lightning does not go on within an epoch of an ordinary DataLoader: it begins the epoch's data anew. So the generators' states from which
the loaders and the epoch's order were made are saved, and a restart makes both again and takes the batches that were used.

Holds: the loops are saved as after the step, though the next batch is there already. Each rank's own: it does not carry over to another
number of ranks.
"""

from collections.abc import Iterator
from typing import Any

from lightning.fabric.utilities.data import _set_sampler_epoch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch import __version__ as lightning_version
from lightning.pytorch.loops.fetchers import _DataLoaderIterDataFetcher
from lightning.pytorch.trainer import call

from trainhouse.checkpointing.state import rng
from trainhouse.workers.session.errors import InvalidUseError

_BATCHES = "epoch_loop.batch_progress"
_LOADERS = "combined_loader"
_ABSENT = object()


class LightningProgress:
    """The state of one Trainer while it fits. `finished`: training had ended when it was saved.

    Hooks of the module and of callbacks get a dict with the keys of Lightning's checkpoints that are not optimizers' or schedules'. Of it
    is saved what they add or replace; where that is the module's weights, only its name.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._at_fit = rng.capture()
        self._at_epoch: dict[str, Any] | None = None
        self._stepped = 0
        self.finished = False

    def epoch_begins(self) -> None:
        """Notes the generators' states before the loader's order of data is made; that of the first epoch was made with the loaders."""
        self._at_epoch = rng.capture() if self._trainer.current_epoch > 0 else None

    def state_dict(self) -> dict[str, Any]:
        """Refers to what the parts gave."""
        trainer = self._trainer
        checkpoint: dict[str, Any] = {
            "loops": _settled(trainer.fit_loop.state_dict()),
            "callbacks": call._call_callbacks_state_dict(trainer),
        }
        if trainer.datamodule is not None:
            checkpoint["datamodule"] = trainer.datamodule.state_dict()
        own = {"at_fit": self._at_fit, "at_epoch": self._at_epoch, "finished": self.finished}
        additions, weights = self._of_hooks(checkpoint)
        return own | {"lightning": checkpoint, "module": additions, "weights": weights}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Loads what `state_dict` gave; the data follow in `go_to_position`."""
        trainer, checkpoint = self._trainer, saved["lightning"]
        self._at_fit, self._at_epoch, self.finished = saved["at_fit"], saved["at_epoch"], saved["finished"]
        self._stepped = trainer_steps(checkpoint["loops"])
        trainer.fit_loop.load_state_dict(checkpoint["loops"])
        if trainer.datamodule is not None and "datamodule" in checkpoint:
            trainer.datamodule.load_state_dict(checkpoint["datamodule"])
        if self._hooks():
            weights = trainer.lightning_module.state_dict()
            whole = self._keys(checkpoint) | saved["module"] | dict.fromkeys(saved["weights"], weights)
            whole.setdefault("state_dict", weights)
            trainer.lightning_module.on_load_checkpoint(whole)
            call._call_callbacks_on_load_checkpoint(trainer, whole)
        call._call_callbacks_load_state_dict(trainer, checkpoint)

    def make_loaders_as_then(self) -> None:
        """Puts the generators back to where loaders are made."""
        rng.restore(self._at_fit)

    def go_to_position(self) -> None:
        """Takes the batches of this epoch that were used, and loads the next one. Blocks while they are loaded. Raises InvalidUseError.

        When the state was saved the next batch was there: only what is drawn after it comes from the generators' saved states.
        """
        loop = self._trainer.fit_loop
        fetcher, used = loop._data_fetcher, loop.epoch_loop.batch_progress.current.completed
        if isinstance(fetcher, _DataLoaderIterDataFetcher):
            raise InvalidUseError("training_step(dataloader_iter): a restart cannot find its place in it; let training_step take a batch")
        for loader in loop._combined_loader.flattened:
            _set_sampler_epoch(loader, loop.epoch_progress.current.processed)
        if self._at_epoch is not None:
            rng.restore(self._at_epoch)
            iter(fetcher)
        for _ in range(used):
            next(fetcher)
        fetcher.fetched -= used  # the epoch's loop counts them when it begins
        fetcher.iterator = _loaded_ahead(fetcher.iterator)

    def correct_count(self) -> None:
        """Sets Lightning's own count of steps, which it raises once too often where an epoch goes on right after a validation."""
        self._trainer.fit_loop.epoch_loop._batches_that_stepped = self._stepped

    def _hooks(self) -> bool:
        """Whether the module or a callback has hooks of checkpoints."""
        trainer = self._trainer
        parts = [(trainer.lightning_module, LightningModule), *((callback, Callback) for callback in trainer.callbacks)]
        names = ("on_save_checkpoint", "on_load_checkpoint")
        return any(getattr(type(part), name) is not getattr(base, name) for part, base in parts for name in names)

    def _keys(self, checkpoint: dict[str, Any]) -> dict[str, Any]:
        """Keys of Lightning's checkpoints that hooks find beside the weights."""
        trainer = self._trainer
        keys = {"epoch": trainer.current_epoch, "global_step": trainer.global_step, "pytorch-lightning_version": lightning_version}
        for part in (trainer.lightning_module, trainer.datamodule):
            if part is not None and part.hparams:
                keys[part.CHECKPOINT_HYPER_PARAMS_KEY] = dict(part.hparams)
        return keys | {"loops": checkpoint["loops"], "callbacks": checkpoint["callbacks"]}

    def _of_hooks(self, checkpoint: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Additions of the hooks, and the keys under which they left the module's weights."""
        if not self._hooks():
            return {}, []
        weights = self._trainer.lightning_module.state_dict()
        given = self._keys(checkpoint) | {"state_dict": weights}
        whole = dict(given)
        call._call_callbacks_on_save_checkpoint(self._trainer, whole)
        self._trainer.lightning_module.on_save_checkpoint(whole)
        additions = {key: value for key, value in whole.items() if value is not weights and value is not given.get(key, _ABSENT)}
        return additions, [key for key, value in whole.items() if value is weights]


def _loaded_ahead(batches: Iterator[Any]) -> Iterator[Any]:
    """The same batches, the next of them loaded now. `iter` of a CombinedLoader would begin it anew, so it is only asked for the next."""
    try:
        first = next(batches)
    except StopIteration:
        return iter(())

    def rest() -> Iterator[Any]:
        yield first
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            yield batch

    return rest()


def trainer_steps(loops: dict[str, Any]) -> int:
    """Batches after which an optimizer stepped, of a fit loop's state."""
    return int(loops["epoch_loop.state_dict"]["_batches_that_stepped"])


def _settled(loops: dict[str, Any]) -> dict[str, Any]:
    """The loops' state without the batch that waits for its step, and without loaders' own states: these are past it."""
    progress = loops[_BATCHES]
    counts = {
        part: progress[part] | dict.fromkeys(("ready", "started", "processed"), progress[part]["completed"])
        for part in ("total", "current")
    }
    own = {name: value for name, value in loops["state_dict"].items() if name != _LOADERS}
    return loops | {_BATCHES: progress | counts | {"is_last_batch": False}, "state_dict": own}
