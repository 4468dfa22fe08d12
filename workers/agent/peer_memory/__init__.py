"""Peer memory of this node: the process that holds other nodes' chunks, and access of this node's ranks to holders."""
