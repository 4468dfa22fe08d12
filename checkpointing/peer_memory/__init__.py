"""Memory tier: chunks of the newest checkpoints in the main memory of other nodes, beside the object store.

Holds: a chunk that comes from memory is used only if it has the hash that a manifest in the store names, so that a replica that is stale,
diverged or damaged is never restored; whatever goes wrong here, the object store is used instead.
"""
