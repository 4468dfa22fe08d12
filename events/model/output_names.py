"""Keys of what a job's ranks write to its outputs, before it is published. Pure.

Holds: all of it lies below the job's own prefix, by output; what agents note of an attempt's end lies beside, where no rank may write.
"""

OUTPUTS = "outputs"
ENDED = "ended"


def pieces_prefix(job_id: str, output: str) -> str:
    """Prefix of the records of an output's named pieces, which stay over attempts."""
    return f"jobs/{job_id}/{OUTPUTS}/{output}/pieces/"


def piece_key(job_id: str, output: str, piece: str) -> str:
    """Key of the record of a named piece."""
    return f"{pieces_prefix(job_id, output)}{piece}.json"


def rank_pieces_prefix(job_id: str, output: str, epoch: int) -> str:
    """Prefix of the records of what the ranks of one attempt wrote outside of named pieces."""
    return f"jobs/{job_id}/{OUTPUTS}/{output}/ranks/{epoch:010d}/"


def rank_piece_key(job_id: str, output: str, epoch: int, rank: int) -> str:
    """Key of the record of one rank."""
    return f"{rank_pieces_prefix(job_id, output, epoch)}{rank:06d}.json"


def staged_shard_key(job_id: str, output: str, sha256: str) -> str:
    """Key of a shard's tar."""
    return f"jobs/{job_id}/{OUTPUTS}/{output}/shards/{sha256}.tar"


def staged_index_key(job_id: str, output: str, sha256: str) -> str:
    """Key of the index of a shard, named by the tar's hash."""
    return f"jobs/{job_id}/{OUTPUTS}/{output}/shards/{sha256}.idx"


def ended_prefix(job_id: str, epoch: int) -> str:
    """Prefix of the notes of agents, one a node, that all ranks of an attempt there exited with code 0."""
    return f"jobs/{job_id}/{ENDED}/{epoch:010d}/"


def ended_key(job_id: str, epoch: int, node_id: str) -> str:
    """Key of such a note."""
    return f"{ended_prefix(job_id, epoch)}{node_id}"


def work_prefix(job_id: str, output: str) -> str:
    """Prefix of what a job of several passes keeps beside an output between them; it is in no version."""
    return f"jobs/{job_id}/{OUTPUTS}/{output}/work/"


def piece_profiles_key(job_id: str, output: str, sha256: str) -> str:
    """Key of the distributions of a piece, named by their hash."""
    return f"jobs/{job_id}/{OUTPUTS}/{output}/profiles/{sha256}.json"
