"""Lookup of the settings that a command uses: the settings file of a data folder, or the environment.

Holds: --data-dir > TRAINHOUSE_CONFIG > TRAINHOUSE_DATA_DIR > the nearest `.trainhouse` from the current folder upward, as git
looks for a repository. Where the environment names a gateway alone, that is it. Single settings in the environment go before the file.
Never: makes a folder.
"""

import os
from collections.abc import Mapping
from pathlib import Path

CONFIG_VARIABLE = "TRAINHOUSE_CONFIG"
DATA_DIR_VARIABLE = "TRAINHOUSE_DATA_DIR"
DATA_DIR_NAME = ".trainhouse"
CONFIG_NAME = "trainhouse.toml"
GATEWAY_VARIABLE = "TRAINHOUSE_GATEWAY_URL"
KAFKA_PREFIX = "TRAINHOUSE_KAFKA_"


def find_data_dir(given: Path | None, environment: Mapping[str, str], here: Path) -> Path:
    """The data folder; where none exists, `.trainhouse` in `here`, which `up` would make."""
    if given is not None:
        return given.absolute()
    named = environment.get(DATA_DIR_VARIABLE)
    if named:
        return Path(named).absolute()
    for folder in (here, *here.parents):
        if (folder / DATA_DIR_NAME / CONFIG_NAME).is_file():
            return folder / DATA_DIR_NAME
    return here / DATA_DIR_NAME


def find_config(given: Path | None, environment: Mapping[str, str], here: Path) -> Path | None:
    """The settings file, None where there is none."""
    named = environment.get(CONFIG_VARIABLE)
    if given is None and named:
        return Path(named)
    config = find_data_dir(given, environment, here) / CONFIG_NAME
    return config if config.is_file() else None


def only_gateway(given: Path | None, environment: Mapping[str, str]) -> bool:
    """Returns whether the environment names a gateway and nothing else: then no folder near is looked for."""
    others = (CONFIG_VARIABLE, DATA_DIR_VARIABLE)
    if given is not None or not environment.get(GATEWAY_VARIABLE) or any(environment.get(name) for name in others):
        return False
    return not _names_brokers(environment)


def _names_brokers(environment: Mapping[str, str]) -> bool:
    """Returns whether any variable is about brokers themselves, and not about how long clients wait for them."""
    return any(name.startswith(KAFKA_PREFIX) and name != f"{KAFKA_PREFIX}MIN_TIMEOUT_S" for name in environment)


def use(given: Path | None) -> None:
    """Makes every settings group of this process read the file that was found. Called once, before settings are made."""
    from trainhouse.cli.shared.exit_codes import CliError, Exit

    if only_gateway(given, os.environ):
        return
    found = find_config(given, os.environ, Path.cwd())
    if found is not None:
        if not found.is_file():
            raise CliError(f"{CONFIG_VARIABLE} names {found}, which is no file; unset it or mend it", Exit.CONFIG)
        os.environ[CONFIG_VARIABLE] = str(found)
        return
    if given is not None:
        raise CliError(
            f"{given} holds no {CONFIG_NAME}: no stack was ever started there; run `trainhouse up --data-dir {given}`", Exit.CONFIG
        )
    if not _names_brokers(os.environ):
        raise CliError(
            "no Trainhouse is near: start one with `trainhouse up --detach`, name its folder by --data-dir, "
            "or set TRAINHOUSE_GATEWAY_URL and TRAINHOUSE_GATEWAY_TOKEN, or TRAINHOUSE_KAFKA_BOOTSTRAP and the other addresses",
            Exit.UNAVAILABLE,
        )


def need_kafka(command: str) -> None:
    """Raises CliError where settings name a gateway alone."""
    from trainhouse.client.quick.quick_sql import knows_kafka, settings_file

    file = settings_file()
    if file is not None and knows_kafka(file, os.environ):
        return
    from trainhouse.cli.shared.exit_codes import CliError, Exit
    from trainhouse.client.backend_choice import by_gateway, known

    url, kafka_known = known()
    if by_gateway(None, url, kafka_known):
        raise CliError(
            f"`{command}` needs Kafka and the object store themselves, and only the gateway at {url} is set: run it where the stack is "
            "(--data-dir DIR), or set TRAINHOUSE_KAFKA_BOOTSTRAP and the other addresses that `trainhouse env` prints there",
            Exit.CONFIG,
        )
