"""Steps as the spec's `training` asks for: micro-batches without a gradient sync between them, a scaled backward pass,
clipping by the norm over all ranks, the optimizer's step.

Holds: all ranks skip a step of the scaler together, also where only one of them has an infinite gradient. A gradient norm that is not
finite is remembered until it is asked for; one that the scaler skips is none. What the spec asks for and the program never uses is an
error once a step is done.
Never: waits for a device, but for the scaler's decision and where the remembered norm is asked for.
"""

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from trainhouse.events.model.training import Precision, Training
from trainhouse.workers.session.errors import InvalidUseError
from trainhouse.workers.session.training import gradient_clipping, model_preparation
from trainhouse.workers.session.training.model_preparation import LOWERED


class Essentials:
    """Settings, scaler and calls of one rank. `pipelined`: the schedule of the pipeline adds up the micro-batches' gradients."""

    def __init__(self, settings: Training, device: torch.device, pipelined: bool) -> None:
        self.settings = settings
        self.scaler = torch.amp.GradScaler(device.type, enabled=settings.precision is Precision.FP16)
        self._models: Sequence[torch.nn.Module] = ()
        self._wrappers: list[DistributedDataParallel | FSDPModule] | None = None
        self._device = device
        self._pipelined = pipelined
        self._used = {"accumulate", "backward"} if pipelined else set[str]()
        self._poor_norm: torch.Tensor | None = None
        self._stepped = False
        self._left: list[torch.Tensor] = []

    def prepare(self, model: torch.nn.Module, blocks: Iterable[torch.nn.Module]) -> None:
        """Sets precision, activation checkpoints and compilation of a model that nothing wraps yet. Raises InvalidUseError."""
        if isinstance(model, DistributedDataParallel | FSDPModule):
            raise InvalidUseError(f"prepare({type(model).__name__}): call it before the model is wrapped or sharded")
        self._used.add("prepare")
        model_preparation.prepare(model, blocks, self.settings, self._device)

    def track(self, models: Sequence[torch.nn.Module]) -> None:
        """Takes the models whose gradients are reduced in the last micro-batch alone; they are wrapped by the first one."""
        self._models, self._wrappers = models, None

    @contextlib.contextmanager
    def micro_batch(self, last: bool) -> Iterator[None]:
        """Forward and backward pass of one micro-batch; gradients are reduced over ranks in the last one alone."""
        self._used.add("accumulate")
        if self._wrappers is None:  # a model has thousands of modules: looked through once, not in each micro-batch
            modules = (module for model in self._models for module in model.modules())
            self._wrappers = [module for module in modules if isinstance(module, DistributedDataParallel | FSDPModule)]
        with contextlib.ExitStack() as stack:
            for wrapper in self._wrappers:
                if isinstance(wrapper, FSDPModule):
                    wrapper.set_requires_gradient_sync(last, recurse=False)
                elif not last:
                    stack.enter_context(wrapper.no_sync())
            yield

    def backward(self, loss: torch.Tensor, share: float | None) -> None:
        """Adds the gradients of a micro-batch's mean loss."""
        self._used.add("backward")
        self._stepped = False
        part = 1.0 / (self.settings.accumulation or 1) if share is None else share
        self.scaler.scale(loss * part).backward()  # type: ignore[no-untyped-call]

    def optimizer_step(
        self, optimizers: Sequence[torch.optim.Optimizer], clip_norm: float | None, stages: dist.ProcessGroup | None
    ) -> torch.Tensor | None:
        """Clips, steps, and clears the gradients. Returns their norm before, None where nothing needs it. Collective.

        `clip_norm`: where the spec has none.
        """
        self._used.add("optimizer_step")
        scaled, most = self.scaler.is_enabled(), self.settings.clip_norm or clip_norm or math.inf
        if scaled and self._stepped:  # the scaler has another scale now than the gradients
            raise InvalidUseError("a second optimizer_step without a backward before it: name all optimizers in one, optimizer_step(a, b)")
        self._stepped = "backward" in self._used and not self._pipelined
        self._refuse_left(optimizers)
        norm = self._clipped(optimizers, most, stages) if scaled or most < math.inf else None
        steps = not scaled or norm is None or self._scaler_steps(norm)
        for optimizer in optimizers:
            if steps:
                optimizer.step()
            optimizer.zero_grad()
        if scaled and self._pipelined:
            parameters = (parameter for model in self._models for parameter in model.parameters())
            self._left = [parameter.grad for parameter in parameters if parameter.grad is not None]
        return norm

    def _refuse_left(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Raises InvalidUseError for gradients of a scale before the scaler's newest; a schedule's backward passes are not seen here."""
        left = {id(gradient) for gradient in self._left}
        self._left = []
        if any(id(parameter.grad) in left for parameter in gradient_clipping.parameters_of(optimizers)):
            raise InvalidUseError(
                "optimizer_step: gradients are left from before the last optimizer_step, after which the scaler has another scale: name "
                "the optimizers of all stages in one, optimizer_step(a, b), or clear gradients that are not to be used"
            )

    def _clipped(self, optimizers: Sequence[torch.optim.Optimizer], most: float, stages: dist.ProcessGroup | None) -> torch.Tensor:
        """Divides the gradients by the scaler's scale and clips them; their norm between the two."""
        parameters = gradient_clipping.parameters_of(optimizers)
        scale = self.scaler.scale(torch.ones((), device=self._device))
        norm = gradient_clipping.global_norm(parameters, self._device, stages) / scale
        gradient_clipping.scale(parameters, (most / (norm + 1e-6)).clamp(max=1.0) / scale)
        if not self.scaler.is_enabled():
            self._poor_norm = norm if self._poor_norm is None else torch.where(self._poor_norm.isfinite(), norm, self._poor_norm)
        return norm

    def _scaler_steps(self, norm: torch.Tensor) -> bool:
        """Lets the scaler judge the norm in place of gradients, which it takes of one mesh only; whether a step is to be taken."""
        judged = torch.nn.Parameter(torch.zeros_like(norm))
        judged.grad = self.scaler.scale(norm)
        stand_in = torch.optim.SGD([judged], lr=0.0)
        self.scaler.step(stand_in)
        self.scaler.update()
        return math.isfinite(float(norm))

    def poor_norm(self) -> float | None:
        """A gradient norm that was not finite, since the last call; waits for the device."""
        norm, self._poor_norm = self._poor_norm, None
        value = 0.0 if norm is None else float(norm)
        return None if math.isfinite(value) else value

    def check_used(self) -> None:
        """Raises InvalidUseError for a setting that the first step has not used, as it would be ignored."""
        settings, scaled, several = self.settings, self.scaler.is_enabled(), (self.settings.accumulation or 1) > 1
        needs = (
            ("precision", settings.precision in LOWERED, {"prepare"}),
            ("activation_checkpointing", settings.activation_checkpointing, {"prepare"}),
            ("compile", settings.compile, {"prepare"}),
            ("accumulation" if settings.global_batch is None else "global_batch", several, {"accumulate", "backward"}),
            ("precision", scaled, {"backward", "optimizer_step"}),
            ("clip_norm", settings.clip_norm is not None, {"optimizer_step"}),
        )
        for name, asked, calls in needs:
            if asked and calls - self._used:
                raise InvalidUseError(
                    f"training.{name} = {getattr(settings, name)}: the first step was made without session."
                    f"{min(calls - self._used)}, so it would be ignored; call it, or leave training.{name} out of the spec"
                )
