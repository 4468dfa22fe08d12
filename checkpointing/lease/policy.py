"""The rights of a lease as an IAM policy, for stores that give keys which end by themselves (STS AssumeRole). Pure.

Holds: nothing in it is wider than what the rule allows, but for what a policy cannot say: the operations of an attempt that is replaced end
with its keys, and what is of another epoch of the same job may be removed, or a piece of its own output be replaced.
"""

from typing import Any

from trainhouse.checkpointing.chain.references import BEST, used_by_key
from trainhouse.checkpointing.lease.access_rule import Lease


def policy_of(lease: Lease, bucket: str) -> dict[str, Any]:
    """For AssumeRole's `Policy`. Names of jobs have no character that a policy reads as a pattern."""
    own, here = f"jobs/{lease.job_id}", f"arn:aws:s3:::{bucket}"
    read = [f"{own}/{part}/*" for part in ("commits", "chunks", "tags", "own")]
    listed = [f"{own}/{part}/*" for part in ("commits", "tags", "own")]
    written = [f"{own}/commits/*", f"{own}/chunks/*", f"{own}/tags/{BEST}", f"{own}/own/{lease.epoch:010d}/savers/*"]
    for output in sorted(lease.outputs):
        at = f"{own}/outputs/{output}"
        read.append(f"{at}/*")
        listed += [f"{at}/pieces/*", f"{at}/work/*"]
        written += [f"{at}/{part}/*" for part in ("shards", "profiles", "pieces", "work", f"ranks/{lease.epoch:010d}")]
    if lease.resumes is not None and lease.resumes != lease.job_id:
        begun_from = used_by_key(lease.resumes, lease.job_id)
        written.append(begun_from)
        read.append(begun_from)
        read += [f"jobs/{lease.resumes}/{part}" for part in ("commits/*", "chunks/*", f"tags/{BEST}")]
        listed.append(f"jobs/{lease.resumes}/commits/*")
    return {
        "Version": "2012-10-17",
        "Statement": [
            _allow(["s3:GetObject"], [f"{here}/{key}" for key in read]),
            _allow(["s3:PutObject", "s3:AbortMultipartUpload"], [f"{here}/{key}" for key in written]),
            _allow(["s3:DeleteObject"], [f"{here}/{own}/own/*"]),
            _allow(["s3:ListBucket"], [here]) | {"Condition": {"StringLike": {"s3:prefix": listed}}},
        ],
    }


def _allow(actions: list[str], resources: list[str]) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": actions, "Resource": resources}
