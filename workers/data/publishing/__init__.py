"""Publishing of datasets: sources to samples, samples to splits and shards, shards and a manifest into the object store.

Holds: the same input gives the same manifest on any machine; memory does not grow with the input. Shards are stored by content, each once,
and the manifest after all of its shards: a publication that ends midway leaves unreferenced shards at most, and the next one goes on
from them.
"""
