"""Check that an update has finished, as far as a command needs it.

Holds: what the version before does not know is refused before anything is sent, since that version may come back.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainhouse.cli.shared.exit_codes import CliError, Exit

if TYPE_CHECKING:
    from trainhouse.events.settings import KafkaSettings
    from trainhouse.scheduler.core.protocol.machine import Machine
    from trainhouse.scheduler.upgrades import JournalUpgrade


def check_levels(kafka: "KafkaSettings", machines: "Mapping[str, Machine[Any]]", needed: Mapping[str, int], what: str) -> None:
    """Refuses `what` where a journal is below the level that it needs. Blocks on the brokers. Raises CliError, BusUnavailableError."""
    from trainhouse.scheduler.stream.history.upgrade_reading import upgrades_of

    refused = too_low(upgrades_of(kafka, machines), needed, what)
    if refused:
        raise CliError(refused, Exit.REJECTED)


def too_low(upgrades: "Sequence[JournalUpgrade]", needed: Mapping[str, int], what: str) -> str:
    """Returns the reason to wait and the way out; empty if all levels are high enough. A journal without a record begins at the newest."""
    for upgrade in upgrades:
        if upgrade.level and upgrade.level < needed[upgrade.journal]:
            why = f"{upgrade.journal} is at level {upgrade.level}, and {what} need level {needed[upgrade.journal]}"
            return f"{why}; finish the update first: `trainhouse upgrade finish --reason TEXT`; nothing was changed"
    return ""
