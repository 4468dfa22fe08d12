"""Accounts of projects on a local stack's brokers: made, printed again, and taken away while it runs.

Holds: repeating is harmless and prints the same password, unless a new one is asked for; what was cut short is put right by a repeat.
Never: a password in an argument of a process, a log line, or a message.
"""

from __future__ import annotations

from pathlib import Path

from trainhouse.deploy.local import client_config
from trainhouse.deploy.local.change_folder import alone, started
from trainhouse.deploy.local.credentials import passwords
from trainhouse.deploy.local.layout import Choices, StackFolder, StackPorts, endpoint
from trainhouse.deploy.local.servers import kafka_sasl
from trainhouse.events.bus.accounts import remove_project, secure_project
from trainhouse.events.bus.admin import create_project_topics
from trainhouse.events.security.grants import OPERATOR, project_account
from trainhouse.events.settings import KafkaSettings
from trainhouse.events.wire.project_topics import topics_of

KAFKA = "kafka"


def create(root: Path, project: str, *, new_password: bool = False) -> KafkaSettings:
    """Creates a project's topics, account and grants; returns its client settings. Raises StackError, BusUnavailableError, ValueError."""
    topics_of(project)
    with alone(started(root)) as (folder, choices):
        operator, name = _as(folder, choices, OPERATOR), project_account(project)
        create_project_topics(operator, project)
        if new_password:
            passwords.renew(folder, KAFKA, name)
        secure_project(operator, project, passwords.password(folder, KAFKA, name))
        return _as(folder, choices, name)


def remove(root: Path, project: str) -> bool:
    """Takes a project's account away, its topics stay; whether there was one. Raises StackError, BusUnavailableError, ValueError."""
    topics_of(project)
    with alone(started(root)) as (folder, choices):
        known = project in client_config.projects_with_accounts(folder)
        found = remove_project(_as(folder, choices, OPERATOR), project)
        # Last, so that one that was cut short is still listed.
        passwords.forget(folder, KAFKA, project_account(project))
        return found or known


def _as(folder: StackFolder, choices: Choices, name: str) -> KafkaSettings:
    section = kafka_sasl.client_section(client_config.account(folder, name))
    return KafkaSettings.model_validate({"bootstrap": endpoint(StackPorts(choices.ports).kafka), "replication": 1, **section})
