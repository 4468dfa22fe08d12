"""A rendezvous store in a process of its own: `python -m trainhouse.workers.launcher.store_host FD ADDRESS PORT WORLD_SIZE`.

Holds: it ends when its stdin does, so it never outlives its keeper. It is enclosed before it answers anybody.
"""

import os
import sys

from trainhouse.workers.launcher.request import StoreOrder
from trainhouse.workers.launcher.warm import hosted_store


def main() -> None:
    """Entry point; blocks until stdin ends."""
    fd, address, port, world_size = sys.argv[1:]
    store = hosted_store(StoreOrder(address, int(port), int(world_size)), int(fd))
    sys.stdin.buffer.read()
    del store
    os._exit(0)


if __name__ == "__main__":
    main()
