"""The value of a secret, wherever it is: kept here, in a file, in the agent's environment, in Vault or OpenBao, in AWS Secrets Manager.

Holds: what cannot be had says which secret, why, and the way out; what may pass (a server that is away) says so. Servers are asked within
a bound of time.
Never: a value, or what a server said, in a message.
"""

import json
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainhouse.workers.secretstore.errors import SecretError
from trainhouse.workers.secretstore.records import SecretRecord
from trainhouse.workers.secretstore.references import Reference
from trainhouse.workers.secretstore.settings import VaultSettings
from trainhouse.workers.secretstore.store import MAX_SECRET_BYTES

AWS_TIMEOUT_S = 5


@dataclass(frozen=True)
class Resolver:
    """Reads values. `environ` is the agent's."""

    vault: VaultSettings = field(default_factory=VaultSettings)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def value(self, record: SecretRecord) -> str:
        """The value now. Blocks. Raises SecretError."""
        raw = self._raw(record)
        if len(raw) > MAX_SECRET_BYTES or b"\0" in raw:
            raise SecretError(f"the secret {record.name} is no text of at most {MAX_SECRET_BYTES} bytes: set it again")
        return raw.decode("utf-8", "surrogateescape")

    def _raw(self, record: SecretRecord) -> bytes:
        reference = record.reference
        if reference is None:
            return record.value or b""
        reads: dict[str, Callable[[Reference], bytes]] = {"file": _of_file, "env": self._of_env, "vault": self._of_vault, "aws": _of_aws}
        try:
            return reads[reference.kind](reference)
        except SecretError as error:
            raise SecretError(f"the secret {record.name} ({reference}): {error}", retryable=error.retryable) from error.__cause__

    def _of_env(self, reference: Reference) -> bytes:
        found = self.environ.get(reference.place)
        if found is None:
            raise SecretError("the agent's environment has no such variable: start the agent with it", retryable=True)
        return found.encode("utf-8", "surrogateescape")

    def _of_vault(self, reference: Reference) -> bytes:
        try:
            import hvac
            import requests
        except ImportError:
            raise SecretError("the library hvac is not installed on this node: `pip install 'trainhouse[vault]'`") from None
        settings = self.vault
        if not settings.address:
            raise SecretError("no Vault is known: set TRAINHOUSE_VAULT_ADDRESS and TRAINHOUSE_VAULT_TOKEN_FILE for the agent")
        mount, _, path = reference.place.partition("/")
        try:
            client = hvac.Client(
                url=settings.address,
                token=_vault_token(settings),
                namespace=settings.namespace,
                verify=settings.ca_file or True,
                timeout=settings.timeout_s,
            )
            found = client.secrets.kv.v2.read_secret_version(path=path, mount_point=mount, raise_on_deleted_version=True)
        except hvac.exceptions.InvalidPath:
            raise SecretError("there is no such path: write it, or correct the reference") from None
        except (hvac.exceptions.Forbidden, hvac.exceptions.Unauthorized):
            raise SecretError("the agent's token may not read it: renew the token, or widen its policy", retryable=True) from None
        except (hvac.exceptions.VaultError, requests.RequestException) as error:
            raise SecretError(f"{settings.address} does not answer: {type(error).__name__}", retryable=True) from None
        return _field(found["data"]["data"], reference)


def _vault_token(settings: VaultSettings) -> str | None:
    if settings.token_file is None:
        return settings.token.get_secret_value() if settings.token is not None else None
    return _private(settings.token_file).decode().strip()


def _of_file(reference: Reference) -> bytes:
    raw = _private(Path(reference.place))
    return raw[:-1] if raw.endswith(b"\n") else raw


def _private(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077:
                raise SecretError(f"{path} may be read by others on this node: `chmod 600` it")
            return file.read(MAX_SECRET_BYTES + 2)
    except OSError as error:
        raise SecretError(f"{path} cannot be read: {error.strerror}", retryable=True) from None


def _of_aws(reference: Reference) -> bytes:
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        config = Config(connect_timeout=AWS_TIMEOUT_S, read_timeout=AWS_TIMEOUT_S, retries={"max_attempts": 2})
        found: Any = boto3.client("secretsmanager", config=config).get_secret_value(SecretId=reference.place)
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        gone = code in ("ResourceNotFoundException", "InvalidRequestException")
        raise SecretError(f"Secrets Manager refused it: {code}", retryable=not gone) from None
    except BotoCoreError as error:
        raise SecretError(f"Secrets Manager does not answer: {type(error).__name__}", retryable=True) from None
    raw = found["SecretString"].encode() if "SecretString" in found else bytes(found["SecretBinary"])
    if not reference.field:
        return raw
    try:
        return _field(json.loads(raw), reference)
    except ValueError:
        raise SecretError("it is no JSON, so it has no fields: leave the # out") from None


def _field(found: Any, reference: Reference) -> bytes:
    value = found.get(reference.field) if isinstance(found, dict) else None
    if value is None:
        raise SecretError(f"what is there has no field {reference.field}")
    return str(value).encode("utf-8", "surrogateescape") if isinstance(value, str) else json.dumps(value).encode()
