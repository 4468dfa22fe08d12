"""Builds a client from settings: environment first, then the settings file, then defaults.

Never: connects; the first method that needs a server does.
"""

from trainhouse.client.client import TrainhouseClient
from trainhouse.client.code import PackedCode
from trainhouse.client.sql import SqlEndpoint
from trainhouse.events import CodeArchive
from trainhouse.events.settings import KafkaSettings


def client_of_settings() -> TrainhouseClient:
    """A client of the Trainhouse that environment and settings file name."""
    return TrainhouseClient(kafka=KafkaSettings(), sql=sql_of_settings(), put_code=put_code)


def sql_of_settings() -> SqlEndpoint:
    """Where ClickHouse answers."""
    from trainhouse.projections.settings import ClickHouseSettings

    found = ClickHouseSettings()
    # "default" without a password is what a server assumes anyway: no header then.
    user = found.user if found.password or found.user != "default" else ""
    return SqlEndpoint(found.url, user, found.password, "" if found.database == "default" else found.database, found.timeout_s)


def put_code(code: PackedCode) -> CodeArchive:
    """Stores an archive and its diff under their hashes, unless they are there. Blocks on the object store."""
    raise NotImplementedError
