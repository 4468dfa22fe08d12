"""A rendezvous store in a process of its own: `python -m trainhouse.workers.launcher.store_host FD ADDRESS PORT WORLD_SIZE`.

Holds: it ends when its stdin does, so it never outlives its keeper.
"""

import os
import sys

from trainhouse.workers.launcher.request import StoreOrder
from trainhouse.workers.launcher.warm import HostedStore


def main() -> None:
    """Entry point; blocks until stdin ends."""
    fd, address, port, world_size = sys.argv[1:]
    store = HostedStore(StoreOrder(address, int(port), int(world_size)), int(fd))
    sys.stdin.buffer.read()
    store.close()
    os._exit(0)


if __name__ == "__main__":
    main()
