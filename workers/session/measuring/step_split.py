"""Marks within a step: the model's forward pass, its backward pass, the optimizers' steps; by public hooks of torch.

A backward pass lasts from the gradient of the model's output to the last gradient of a parameter. Waits for other ranks after that (DDP's
last bucket) cannot be told from the program's own work before the optimizer's step, so there is no part `communication`.

Holds: a step is sampled at most every SAMPLE_EVERY_S; in the others a hook looks at one field. On a device the times are those of its
stream, by events that are read once they are done. What was not measured in a step is left out, not zero. A compiled model has no parts
but the optimizer's.
Never: changes what the program computes, or is saved or copied with its model.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from trainhouse.workers.session.measuring.flop_count import Shapes
from trainhouse.workers.session.measuring.guard import Guard, guarded
from trainhouse.workers.session.steps.worktime import Clock, Hook, HostClock, StreamClock

SAMPLE_EVERY_S = 0.05
MAX_UNREAD = 64
MAX_SAMPLES = 512
# How often the parameter whose gradient comes last is looked for, in a model whose parameters tell of no gradient.
MAX_SEARCHES = 3
Marks = list[tuple[Any, Any]]


class Sample:
    """One step's marks, pairs of a begin and an end."""

    __slots__ = ("backward", "forward", "optimizer", "shapes", "void")

    def __init__(self) -> None:
        self.forward: Marks = []
        self.backward: Marks = []
        self.optimizer: Marks = []
        self.shapes: Shapes = ()
        self.void = False


class StepSplit:
    """Measures one model and its optimizers. Hooks may come from torch's threads, one at a time."""

    def __init__(self, guard: Guard | None = None) -> None:
        self.guard = guard or Guard()
        self.samples: deque[Sample] = deque(maxlen=MAX_SAMPLES)
        """Steps whose marks are all made, some of them perhaps not reached by the device."""
        self.before_optimizer: Callable[[torch.optim.Optimizer], None] = lambda optimizer: None
        """Called in a sampled step right before an optimizer's."""
        self.clock: Clock = HostClock()
        self._sample: Sample | None = None
        self._sampled_at = float("-inf")
        self._warm = False
        self._open: Any = None
        self._going_back: Any = None
        self._stepping: Any = None
        self._within = 0
        self._parameters: tuple[torch.nn.Parameter, ...] = ()
        self._last: torch.nn.Parameter | None = None
        self._last_hook: Any = None
        self._searching: list[Any] = []
        self._searches = 0
        self._output_hooks: list[Any] = []

    def watch(self, models: Sequence[torch.nn.Module], optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Hooks into them. Call it once. Of a rank with several models (pipeline stages) only the optimizers are measured."""
        for optimizer in optimizers:
            # A wrapper that is no such optimizer, or never ran its base's __init__, is left unmeasured.
            if isinstance(optimizer, torch.optim.Optimizer) and hasattr(optimizer, "_optimizer_step_pre_hooks"):
                optimizer.register_step_pre_hook(self._before_optimizer)
                optimizer.register_step_post_hook(self._after_optimizer)
        if len(models) != 1 or isinstance(models[0], torch.jit.ScriptModule):
            return
        model = models[0]
        first = next(model.parameters(), None)
        if first is not None and first.is_cuda:
            self.clock = StreamClock()
        self._parameters = tuple(p for p in model.parameters() if p.requires_grad)
        model.register_forward_pre_hook(_InputHook(self._enter), with_kwargs=True)
        model.register_forward_hook(_OutputHook(self._leave))

    def begin(self, now: float) -> None:
        """A step begins; it is sampled if it is time."""
        self._sample = self._open = self._going_back = self._stepping = None
        self._within = 0  # a step that raised did not come to its end
        if not self._warm:
            self._warm = True  # the first step compiles, allocates and fills caches
        elif now - self._sampled_at >= SAMPLE_EVERY_S:
            self._sampled_at = now
            self._sample = Sample()
            self._search()

    def force(self) -> None:
        """Samples the step that just began, whatever the time."""
        self._sample = self._sample or Sample()

    def end(self, undisturbed: bool) -> Sample | None:
        """It ends. Returns its sample, which counts only if the step is `undisturbed`."""
        sample, self._sample = self._sample, None
        self._remove_output_hooks()
        self._found(sample)
        if sample is not None and undisturbed and not sample.void:
            self.samples.append(sample)
        return sample

    def taken_ms(self) -> dict[str, tuple[float, ...]]:
        """Takes the samples that are known: for each part the time of each step that has it. Later ones stay."""
        found: dict[str, list[float]] = {"forward": [], "backward": [], "optimizer": []}
        while self.samples:
            times = {name: self._sum_ms(getattr(self.samples[0], name)) for name in found}
            if any(ms is None for ms in times.values()):
                break
            self.samples.popleft()
            for name, ms in times.items():
                if ms:
                    found[name].append(ms)
        return {name: tuple(times) for name, times in found.items() if times}

    def _sum_ms(self, marks: Marks) -> float | None:
        times = [self.clock.between_ms(one, other) for one, other in marks]
        known = [ms for ms in times if ms is not None]
        return sum(known) if len(known) == len(times) else None

    @guarded
    def _enter(self, module: torch.nn.Module, inputs: Any) -> None:
        sample = self._sample
        if sample is None or not module.training:
            return
        if self._stepping is not None:
            sample.void = True  # an optimizer that evaluates the model by itself (LBFGS)
        self._open = self.clock.mark()
        sample.shapes += tuple(tuple(x.shape) for x in _tensors(inputs))

    @guarded
    def _leave(self, module: torch.nn.Module, output: Any) -> None:
        sample, begun, self._open = self._sample, self._open, None
        if sample is None or begun is None:
            return
        ended = self.clock.mark()
        if ended is None:
            return
        sample.forward.append((begun, ended))
        found = next((x for x in _tensors(output) if x.grad_fn is not None), None)  # a leaf may live on: its hooks would pile up
        if found is not None:
            hook = _GradientHook(lambda: self._backward_begins(sample))
            self._output_hooks.append(found.register_hook(hook))  # type: ignore[no-untyped-call]

    def _remove_output_hooks(self) -> None:
        hooks, self._output_hooks = self._output_hooks, []
        for hook in hooks:
            hook.remove()

    @guarded
    def _backward_begins(self, sample: Sample) -> None:
        if sample is self._sample and self._going_back is None:
            self._going_back = self.clock.mark()

    @guarded
    def _gradient_came(self, parameter: torch.nn.Parameter) -> None:
        sample = self._sample
        if sample is None or self._going_back is None:
            return
        if self._searching:
            self._last = parameter
        elif parameter is self._last:
            begun, self._going_back = self._going_back, None
            ended = self.clock.mark()
            if ended is not None:
                sample.backward.append((begun, ended))

    def _search(self) -> None:
        """Begins to look for the parameter whose gradient comes last, unless it is known."""
        if self._last is None and self._parameters and self._searches < MAX_SEARCHES:
            self._searches += 1
            self._searching = [p.register_post_accumulate_grad_hook(self._gradient_came) for p in self._parameters if p.requires_grad]  # type: ignore[no-untyped-call]

    def _found(self, sample: Sample | None) -> None:
        """Ends the search; or forgets the parameter if a whole backward pass did not come to it."""
        if self._searching:
            for handle in self._searching:
                handle.remove()
            self._searching = []
            if self._last is not None and not self._last.requires_grad:
                self._last = None  # frozen meanwhile
            if self._last is not None:
                self._last_hook = self._last.register_post_accumulate_grad_hook(self._gradient_came)  # type: ignore[no-untyped-call]
        elif sample is not None and self._going_back is not None and self._last_hook is not None:
            self._last_hook.remove()
            self._last = self._last_hook = None
            sample.backward.clear()

    @guarded
    def _before_optimizer(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._within += 1  # the step of a subclass calls that of its base, which has the hooks too
        if self._sample is not None and self._within == 1:
            self.before_optimizer(optimizer)
            self._stepping = self.clock.mark()

    @guarded
    def _after_optimizer(self, *_: Any) -> None:
        self._within -= 1
        if self._within > 0:
            return
        sample, begun, self._stepping = self._sample, self._stepping, None
        if sample is not None and begun is not None and (ended := self.clock.mark()) is not None:
            sample.optimizer.append((begun, ended))


class _InputHook(Hook):
    """Forward pre-hook that passes the module and its inputs on, positional ones and keywords."""

    def _pass_on(self, module: torch.nn.Module, values: tuple[Any, ...]) -> None:
        self._call(module, values)


class _OutputHook(Hook):
    """Forward hook that passes the module and its output on."""

    def _pass_on(self, module: torch.nn.Module, values: tuple[Any, ...]) -> None:
        self._call(module, values[-1])


class _GradientHook:
    """Hook of one tensor's gradient, which it leaves as it is."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def __call__(self, gradient: torch.Tensor) -> None:
        self._call()


def _tensors(value: Any, depth: int = 4) -> list[torch.Tensor]:
    """The tensors in a module's inputs or output, in nested lists and mappings too."""
    if isinstance(value, torch.Tensor):
        return [value]
    if depth == 0:
        return []
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, (tuple, list)) else ()
    return [x for part in parts for x in _tensors(part, depth - 1)]
