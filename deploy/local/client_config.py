"""`trainhouse.toml`: what the person's clients of this stack read, the same as shell exports, and a file of its own for each part.

Always: tables and keys that a person added are kept; the keys of the store, and of the gateway's tokens, are made once.
A part's file is the person's with the part's own account on the brokers.  Never: readable by others.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trainhouse.deploy.local.credentials import passwords as credentials
from trainhouse.deploy.local.credentials import signing_keys, token_keys
from trainhouse.deploy.local.credentials.passwords import password
from trainhouse.deploy.local.free_ports import LOOPBACK
from trainhouse.deploy.local.layout import Choices, StackFolder, StackPorts, endpoint, read_toml, write_toml
from trainhouse.deploy.local.servers import certificates, kafka_sasl
from trainhouse.deploy.local.servers.kafka_sasl import Account
from trainhouse.deploy.local.servers.seaweedfs import BUCKET, REGION, StoreKeys
from trainhouse.events.security.grants import OPERATOR, PRINCIPALS, project_account, project_of_account

KEY, OLD_KEY, NEXT_KEY = "key", "old key", "next key"
OLD_BROKER = "broker until its restart"

# People and the stack's own readers; who asks in raw SQL through the gateway.
SQL_USER, SQL_GUEST = "trainhouse", "guest"


def keys_of(folder: StackFolder) -> StoreKeys:
    """The store's keys as the folder has them, or new ones."""
    s3 = read_toml(folder.client_config).get("s3", {}) if folder.client_config.exists() else {}
    if "access_key" in s3 and "secret_key" in s3:
        return StoreKeys(s3["access_key"], s3["secret_key"])
    return StoreKeys.new()


def keep_old_key(folder: StackFolder, keys: StoreKeys) -> None:
    """Keeps a key of the store of before, which it goes on to take; nothing if it is kept already."""
    if keys in old_keys(folder):
        return
    taken = set(_old_names(folder))
    name = next(name for n in range(1, len(taken) + 2) if (name := OLD_KEY if n == 1 else f"{OLD_KEY} {n}") not in taken)
    credentials.keep(folder, "store", name, _as_text(keys))


def old_keys(folder: StackFolder) -> tuple[StoreKeys, ...]:
    """Earlier keys of the store that it still accepts."""
    return tuple(found for name in _old_names(folder) if (found := _kept(folder, name)) is not None)


def forget_old_keys(folder: StackFolder) -> None:
    """Forgets the store's retired keys, so that it accepts them no more."""
    for name in _old_names(folder):
        credentials.forget(folder, "store", name)


def next_key(folder: StackFolder) -> StoreKeys:
    """The store's key of a rotation that is under way; made where there is none."""
    found = _kept(folder, NEXT_KEY)
    if found is None or found == keys_of(folder):
        found = StoreKeys.new()
        credentials.keep(folder, "store", NEXT_KEY, _as_text(found))
    return found


def forget_next_key(folder: StackFolder) -> None:
    """It is in use, or is not wanted any more."""
    if _kept(folder, NEXT_KEY) is not None:
        credentials.forget(folder, "store", NEXT_KEY)


def taken_keys(folder: StackFolder) -> tuple[StoreKeys, ...]:
    """Keys that the store accepts besides its current one."""
    coming = _kept(folder, NEXT_KEY)
    return (*old_keys(folder), *(() if coming is None else (coming,)))


def _old_names(folder: StackFolder) -> list[str]:
    return [each.name for each in credentials.known(folder) if each.server == "store" and each.name.startswith(OLD_KEY)]


def _kept(folder: StackFolder, name: str) -> StoreKeys | None:
    found = credentials.read(folder, "store", name)
    if found is None:
        return None
    access, _, secret = found.partition(":")
    return StoreKeys(access, secret)


def _as_text(keys: StoreKeys) -> str:
    return f"{keys.access_key}:{keys.secret_key}"


def keep_old_broker(folder: StackFolder, secret: str) -> None:
    """Keeps the own password of the broker that runs, which it goes by until it is started again."""
    credentials.keep(folder, "kafka", OLD_BROKER, secret)


def old_broker(folder: StackFolder) -> Account | None:
    """The broker's account as it was when it started, if that was changed since."""
    found = credentials.read(folder, "kafka", OLD_BROKER)
    return None if found is None else Account(kafka_sasl.BROKER, found)


def forget_old_broker(folder: StackFolder) -> None:
    """The broker was started again."""
    if old_broker(folder) is not None:
        credentials.forget(folder, "kafka", OLD_BROKER)


def local_token(folder: StackFolder) -> Path:
    """Path of the gateway's token for the user who runs the stack."""
    return folder.part("gateway") / "token"


def write(folder: StackFolder, choices: Choices, keys: StoreKeys) -> None:
    """Write the file, keeping what is not ours in it."""
    content: dict[str, Any] = read_toml(folder.client_config) if folder.client_config.exists() else {}
    signing = signing_keys.sections(folder, content)
    for section, values in (*sections(folder, choices, keys).items(), *signing.items()):
        if section == "gateway" and not choices.tls and content.get(section, {}).get("ca") == _tls(folder)["ca"]:
            content[section] = {name: value for name, value in content[section].items() if name not in _tls(folder)}
        content[section] = {**content.get(section, {}), **values}
    write_toml(folder.client_config, content)
    write_parts(folder)


def part_config(folder: StackFolder, name: str) -> Path:
    """The settings file of one part."""
    return folder.part("parts") / f"{name}.toml"


def write_parts(folder: StackFolder) -> None:
    """Writes every part's file from the person's."""
    folder.part("parts").mkdir(mode=0o700, exist_ok=True)
    for name in PRINCIPALS:
        write_part(folder, name)


def write_part(folder: StackFolder, name: str) -> None:
    """Writes one part's file from the person's."""
    content = read_toml(folder.client_config)
    content["kafka"] = {**content["kafka"], **kafka_sasl.client_section(account(folder, name))}
    write_toml(part_config(folder, name), signing_keys.of_part(content, name))


def account(folder: StackFolder, name: str) -> Account:
    """An account on the brokers, with its password; made on first use, under the folder's lock."""
    return Account(name, password(folder, "kafka", name))


def passwords(folder: StackFolder) -> dict[str, str]:
    """All accounts on the brokers that log in by SCRAM: the parts', the projects', the operator's."""
    projects = [project_account(project) for project in projects_with_accounts(folder)]
    return {name: password(folder, "kafka", name) for name in (*PRINCIPALS, *projects, OPERATOR)}


def projects_with_accounts(folder: StackFolder) -> list[str]:
    """The projects that were given accounts on the brokers."""
    names = [each.name for each in credentials.known(folder) if each.server == "kafka"]
    return [project for name in names if (project := project_of_account(name)) is not None]


def sections(folder: StackFolder, choices: Choices, keys: StoreKeys) -> dict[str, dict[str, Any]]:
    """Sections of the client configuration, as `up` decides them."""
    ports = StackPorts(choices.ports)
    return {
        "kafka": {
            "bootstrap": endpoint(ports.kafka),
            "replication": 1,
            **kafka_sasl.client_section(account(folder, OPERATOR)),
        },
        "s3": {
            "endpoint": endpoint(ports.store.s3, "http"),
            "bucket": BUCKET,
            "region": REGION,
            "access_key": keys.access_key,
            "secret_key": keys.secret_key,
        },
        "clickhouse": {
            "url": endpoint(ports.clickhouse, "http"),
            "user": SQL_USER,
            "password": password(folder, "sql", SQL_USER),
            "guest_user": SQL_GUEST,
            "guest_password": password(folder, "sql", SQL_GUEST),
        },
        "projector": {
            "data_dir": str(folder.part("clickhouse")),
            "http_host": LOOPBACK,
            "http_port": ports.clickhouse,
        },
        "gateway": {
            "url": endpoint(ports.gateway, "https" if choices.tls else "http"),
            **(_tls(folder) if choices.tls else {}),
            "host": LOOPBACK,
            "port": ports.gateway,
            "key_file": str(token_keys.token_key(folder)),
            "accepted_keys_file": str(token_keys.accepted_keys(folder)),
            "token_file": str(local_token(folder)),
        },
        "agent": {"slots": choices.slots, "address": LOOPBACK, "dir": str(folder.part("agent"))},
    }


def _tls(folder: StackFolder) -> dict[str, str]:
    ca, certificate, key = (str(path) for path in certificates.paths(folder))
    return {"ca": ca, "tls_cert": certificate, "tls_key": key}


def exports(folder: StackFolder, part: str | None = None) -> dict[str, str]:
    """The endpoints as environment variables: the person's, or those of a process that does a part's work beside the stack."""
    config = folder.client_config if part is None else part_config(folder, part)
    found = read_toml(config)
    sasl = {name: found["kafka"].get(name) for name in ("security_protocol", "sasl_mechanism", "sasl_username", "sasl_password")}
    gateway, token = found.get("gateway", {}), local_token(folder)
    return {
        "TRAINHOUSE_KAFKA_BOOTSTRAP": found["kafka"]["bootstrap"],
        **{f"TRAINHOUSE_KAFKA_{name.upper()}": value for name, value in sasl.items() if value},
        "TRAINHOUSE_S3_ENDPOINT": found["s3"]["endpoint"],
        "TRAINHOUSE_S3_BUCKET": found["s3"]["bucket"],
        "TRAINHOUSE_S3_REGION": found["s3"]["region"],
        "TRAINHOUSE_S3_ACCESS_KEY": found["s3"]["access_key"],
        "TRAINHOUSE_S3_SECRET_KEY": found["s3"]["secret_key"],
        **_sql(found["clickhouse"]),
        **signing_keys.exports(found, part),
        **({"TRAINHOUSE_GATEWAY_URL": gateway["url"]} if "url" in gateway else {}),
        **({"TRAINHOUSE_GATEWAY_CA": gateway["ca"]} if "ca" in gateway else {}),
        **({"TRAINHOUSE_GATEWAY_TOKEN": token.read_text().strip()} if part is None and token.exists() else {}),
        "TRAINHOUSE_CONFIG": str(config),
        "TRAINHOUSE_DATA_DIR": str(folder.root),
    }


def _sql(section: dict[str, str]) -> dict[str, str]:
    """Environment variables of the SQL endpoint and its account; the DSN has all of them in one URL."""
    url, user, secret = section["url"], section.get("user", ""), section.get("password", "")
    if not user:
        return {"TRAINHOUSE_CLICKHOUSE_URL": url}
    return {
        "TRAINHOUSE_CLICKHOUSE_URL": url,
        "TRAINHOUSE_CLICKHOUSE_USER": user,
        "TRAINHOUSE_CLICKHOUSE_PASSWORD": secret,
        "TRAINHOUSE_CLICKHOUSE_DSN": url.replace("://", f"://{quote(user, safe='')}:{quote(secret, safe='')}@", 1),
    }


def as_shell(variables: dict[str, str]) -> str:
    """`export NAME=value` lines, quoted for a shell."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
