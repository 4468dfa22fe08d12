"""Checks of a self test on an accelerator: exact products, memory integrity, error counters that stand still.

Holds: all numbers are whole and small enough to be exact in the precision that is tried, in any order of sums: a healthy device is never
judged by rounding. Bounded: some seconds and 1 GiB a device.
"""

import torch

from trainhouse.events import DeviceHealth
from trainhouse.workers.agent.node.nvml import discover
from trainhouse.workers.agent.probe.checks import MIB, PATTERNS, CheckFailedError

SIDE = 1024
PRODUCTS = 16
MEMORY_BYTES = 1024 * MIB
SEED = 7


def accelerator(index: int, device_id: str) -> str:
    """Tries one device, the `index`-th that is visible. Raises CheckFailedError. Blocks."""
    if not torch.cuda.is_available() or index >= torch.cuda.device_count():
        raise CheckFailedError(f"torch sees {torch.cuda.device_count() if torch.cuda.is_available() else 0} devices, not {device_id}")
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    before = health_of(device_id)
    products(device, torch.float32)
    products(device, torch.float16)
    size = min(MEMORY_BYTES, torch.cuda.mem_get_info(device)[0] // 4)
    device_memory(device, size)
    torch.cuda.synchronize(device)
    return f"{torch.cuda.get_device_name(device)}: exact products, {size // MIB} MiB of memory" + errors_between(
        before, health_of(device_id)
    )


def products(device: torch.device, precision: torch.dtype, side: int = SIDE) -> None:
    """The same product again and again, compared with the processor's. Raises CheckFailedError."""
    numbers = torch.Generator().manual_seed(SEED)
    left = torch.randint(-2, 3, (side, side), generator=numbers, dtype=torch.float64)
    right = torch.randint(-2, 3, (side, side), generator=numbers, dtype=torch.float64)
    expected = (left @ right).to(device=device, dtype=precision)
    on_device = left.to(device=device, dtype=precision), right.to(device=device, dtype=precision)
    for number in range(PRODUCTS):
        wrong = int((on_device[0] @ on_device[1] != expected).sum())
        if wrong:
            raise CheckFailedError(f"{wrong} of {side * side} numbers of product {number} in {precision} are wrong")


def device_memory(device: torch.device, size: int) -> None:
    """A block of the device's memory keeps every pattern, and each of its words its own number. Raises CheckFailedError."""
    block = torch.empty(max(1, size // 8), dtype=torch.int64, device=device)
    for pattern in PATTERNS:
        signed = pattern - 2**64 if pattern >= 2**63 else pattern
        block.fill_(signed)
        _none_wrong(int((block != signed).sum()))
    torch.arange(block.numel(), out=block)
    for begin in range(0, block.numel(), MIB):
        part = block[begin : begin + MIB]
        _none_wrong(int((part != torch.arange(begin, begin + part.numel(), device=device)).sum()))


def health_of(device_id: str) -> DeviceHealth | None:
    """Returns the driver's state of the device; None where it has none."""
    found = discover()
    return next((h for h in found.health() if h.device_id == device_id), None) if found is not None else None


def errors_between(before: DeviceHealth | None, after: DeviceHealth | None) -> str:
    """Describes the counters of memory errors, for the end of a sentence. Raises CheckFailedError if one has risen."""
    counters = []
    for name in ("ecc_uncorrected", "ecc_corrected"):
        old, new = getattr(before, name, None), getattr(after, name, None)
        if old is not None and new is not None and new > old:
            raise CheckFailedError(f"{name} rose from {old} to {new} during the test")
        if new is not None:
            counters.append(f"{name} {new}")
    return f", {', '.join(counters)}" if counters else ""


def _none_wrong(count: int) -> None:
    if count:
        raise CheckFailedError(f"{count} words of the device's memory changed")
