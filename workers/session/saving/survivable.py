"""Rule that decides in advance whether a rank of this gang could save for one that dies, and the reason if not.

What a survivor saves is the state at the last step boundary of all. It has that only if the program knows of a failed collective before the
optimizer's step. With gloo and tensors in host memory it does: whoever waits for a collective gets its error there. With nccl the program
only asks the device to wait: it goes on, through the optimizer's step and into the next one, while the collective hangs; when the watchdog
ends that, what was asked for behind it may run on gradients that nobody finished. For tensors on a device a survivor would need: a program
that waits for the device before the optimizer's step, the device's word that all up to the boundary was done without an error, and no
captured graphs, whose writes nobody counts. Nobody can be sure of these from outside of the program, so there nothing is saved.

Holds: when it is not known whether a state would be exact, the answer is no.
"""

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from trainhouse.workers.session.saving.tracked_state import Tracked

KNOWN_BEFORE_THE_STEP = frozenset({("gloo", "cpu")})


def why_not_survivable(tracked: Tracked, ranks: int) -> str:
    """Empty if each of so many ranks has the whole model and optimizer, and would know of a failure in time; else what forbids it."""
    model = tracked.model
    if not isinstance(model, DistributedDataParallel) or not tracked.optimizers:
        return "no rank has all of the model and the optimizer, as under DistributedDataParallel"
    if model.process_group.size() < ranks:
        return f"the model is replicated over {model.process_group.size()} of {ranks} ranks, so no rank has all of it"
    if any(hasattr(optimizer, "consolidate_state_dict") for optimizer in tracked.optimizers):
        return "the optimizer's state is sharded over ranks"
    if tracked.ema is not None or tracked.extra:
        return "an average of the weights, or a part of the program's own, may have changed since the last step boundary"
    parameters = list(model.parameters())
    if any(type(p) not in (torch.Tensor, torch.nn.Parameter) for p in parameters):
        return "the model has tensors that are sharded over ranks"
    kinds = sorted({p.device.type for p in parameters})
    return next((why for why in (why_too_late(model.process_group, kind) for kind in kinds) if why), "")


def why_too_late(group: Any, kind: str) -> str:
    """Empty if the program knows in time that a collective of this group failed, for tensors on devices of this type."""
    try:
        backend = str(group._get_backend(torch.device(kind)).name()).lower()
    except RuntimeError:
        backend = "a backend without a name"
    if (backend, kind) in KNOWN_BEFORE_THE_STEP:
        return ""
    return f"its tensors are on {kind}, and {backend} may tell of a failed collective only after the optimizer has used what it left"
