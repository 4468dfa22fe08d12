"""A rendezvous store in a process of its own: `python -m trainhouse.workers.launcher.store_host FD ADDRESS PORT WORLD_SIZE`.

Holds: it ends when its stdin does, so it never outlives its keeper. It is enclosed before it answers anybody.
A single rank seldom connects, so its store imports torch only then; ranks that meet do not wait for that.
"""

import os
import select
import sys

from trainhouse.workers.launcher.request import StoreOrder
from trainhouse.workers.launcher.warm import hosted_store


def main() -> None:
    """Entry point; blocks until stdin ends."""
    fd, (address, port, world_size) = int(sys.argv[1]), sys.argv[2:]
    order = StoreOrder(address, int(port), int(world_size))
    if order.world_size == 1 and fd not in select.select([fd, sys.stdin.buffer], [], [])[0]:
        return
    store = hosted_store(order, fd)  # noqa: F841  # held until the end
    sys.stdin.buffer.read()
    os._exit(0)  # with no look back at the store: what ranks did to it may not hold up its end


if __name__ == "__main__":
    main()
