"""Text of a gang's needs, and of other quantities.

Holds: a sentence names numbers and units; equal shapes have equal words.
"""

from trainhouse.scheduler.core.cluster.shape import GIB, WHOLE, Block, Shape


def needs(shape: Shape) -> str:
    """For example: 64 devices of type H100 in one rack; 16 to 64 devices in steps of 4; 250/1000 of one device."""
    text = " and ".join(_block(shape, b) for b in shape.blocks)
    if shape.require:
        text += f" in one {shape.require}"
    if shape.group > 1:
        text += f", each {shape.group} consecutive ranks in one NVLink domain"
    if shape.labels:
        text += ", on nodes with " + ", ".join(f"{k}={v}" for k, v in shape.labels)
    return text if shape.spot else text + ", on no spot node"


def _block(shape: Shape, block: Block) -> str:
    if shape.milli < WHOLE:
        text = f"{shape.milli}/1000 of one device"
    elif shape.min_ranks and shape.min_ranks < shape.ranks:
        text = f"{shape.min_ranks} to {shape.ranks} devices" + _steps(shape)
    else:
        text = f"{block.ranks} device{'' if block.ranks == 1 else 's'}"
    if block.types:
        text += f" of type {' or '.join(block.types)}"
    each = [f"{block.device_memory_bytes / GIB:g} GiB of device memory"] if block.device_memory_bytes else []
    each += [f"{block.cpus:g} cpus"] if block.cpus else []
    each += [f"{block.memory_bytes / GIB:g} GiB of memory"] if block.memory_bytes else []
    if each:
        text += f" with {' and '.join(each)} each"
    return f"{text} ({block.role})" if block.role else text


def _steps(shape: Shape) -> str:
    if shape.batch:
        return f" in sizes that divide {shape.batch}"
    return f" in steps of {shape.step}" if shape.step > 1 else ""


def devices(count: int) -> str:
    """A number of devices."""
    return f"{count} device{'' if count == 1 else 's'}"


def span(milliseconds: int) -> str:
    """A length of time, in the two largest units."""
    seconds = max(0, milliseconds) // 1000
    days, hours, minutes = seconds // 86_400, seconds % 86_400 // 3600, seconds % 3600 // 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"
