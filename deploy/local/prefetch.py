"""`python -m trainhouse.deploy.local.prefetch`: fetch everything that `trainhouse up` needs, so that it runs offline.

`--relock` resolves the coordinates anew and writes `kafka.lock`: for a change of Kafka's version, with a review.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from trainhouse.deploy.local.errors import StackError
from trainhouse.deploy.local.servers import class_archive, jars

COORDINATES = (
    "org.apache.kafka:kafka_2.13:4.1.0",
    "org.apache.kafka:kafka-tools:4.1.0",
    "org.slf4j:slf4j-simple:1.7.36",
)


def relock(lock_file: Path) -> None:
    """Resolve COORDINATES and all that they need, and write their hashes; blocks for a minute; needs network."""
    from jgo.maven import MavenContext
    from jgo.parse import Endpoint

    with tempfile.TemporaryDirectory() as folder:
        context = MavenContext(repo_cache=Path(folder))
        parsed = Endpoint.parse("+".join(COORDINATES)).coordinates
        wanted = [context.create_dependency(replace(each, scope="compile")) for each in parsed]
        direct, indirect = context.resolver.resolve(wanted)
        found = [*direct, *(each for each in indirect if each.scope in ("compile", "runtime"))]
        lines = [f"{a.groupId}:{a.artifactId}:{a.version} {jars.sha256_of(a.resolve())}" for a in (d.artifact for d in found)]
    lock_file.write_text("# Written by `python -m trainhouse.deploy.local.prefetch --relock`\n" + "\n".join(lines) + "\n")


def main() -> int:
    """Fetch, or relock and fetch; 0 when everything is there."""
    if "--relock" in sys.argv[1:]:
        relock(jars.LOCK_FILE)
    try:
        found = jars.ensure(say=print)
    except StackError as error:
        print(error, file=sys.stderr)
        return 1
    archive = class_archive.archive_path()
    if not archive.exists():
        class_archive.build(archive, say=print)
    print(f"Kafka is there: {len(found)} jars")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
