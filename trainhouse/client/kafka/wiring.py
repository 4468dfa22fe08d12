"""Builds the way by Kafka from settings: environment first, then the settings file, then defaults.

Never: connects; the first method that needs a server does.
"""

from trainhouse.client.code_archive import PackedCode
from trainhouse.client.errors import NotReachableError
from trainhouse.client.kafka.backend import ByKafka
from trainhouse.client.sql import SqlEndpoint
from trainhouse.events import CodeArchive
from trainhouse.events.settings import KafkaSettings


def by_kafka(kafka: KafkaSettings | None = None) -> ByKafka:
    """The way by Kafka, SQL and the object store that environment and settings file name."""
    return ByKafka(kafka=kafka or KafkaSettings(), sql=sql_of_settings(), put=put_code, tags=checkpoint_tags)


def sql_of_settings() -> SqlEndpoint:
    """ClickHouse endpoint of the settings."""
    from trainhouse.projections.settings import ClickHouseSettings

    found = ClickHouseSettings()
    # "default" without a password is what a server assumes anyway: no header then.
    user = found.user if found.password or found.user != "default" else ""
    return SqlEndpoint(found.url, user, found.password, "" if found.database == "default" else found.database, found.timeout_s)


def checkpoint_tags(job_id: str) -> list[dict[str, int | str | None]]:
    """Commit and name of what keeps checkpoints of a job. Blocks on the object store for seconds. Raises NotReachableError."""
    from trainhouse.checkpointing.chain.references import TAGS_S, references
    from trainhouse.checkpointing.errors import CheckpointError
    from trainhouse.checkpointing.settings import StoreSettings
    from trainhouse.checkpointing.stores.s3 import S3ObjectStore

    try:
        return references(S3ObjectStore(StoreSettings().within(TAGS_S)), job_id).rows
    except CheckpointError as error:
        raise NotReachableError(f"the tags of {job_id} could not be read: {error}") from error


def put_code(code: PackedCode) -> CodeArchive:
    """Stores an archive and its diff under their hashes, unless they are there. Blocks on the object store."""
    from trainhouse.checkpointing.errors import CheckpointError
    from trainhouse.checkpointing.settings import StoreSettings
    from trainhouse.checkpointing.stores.s3 import S3ObjectStore

    objects = S3ObjectStore(StoreSettings())
    key, diff_key = f"code/{code.sha256}.tar.gz", f"code/{code.diff_sha256}.diff"
    try:
        if objects.stat(key) is None:
            objects.put(key, code.archive)
        if code.git_diff and objects.stat(diff_key) is None:
            objects.put(diff_key, code.git_diff)
    except CheckpointError as error:
        raise NotReachableError(f"the code could not be stored: {error}") from error
    return code.stored(objects.uri(key), objects.uri(diff_key) if code.git_diff else None)
