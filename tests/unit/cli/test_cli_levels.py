"""A command that an unfinished update does not know yet is refused in one sentence."""

from trainhouse.cli.stack.levels import too_low
from trainhouse.scheduler.upgrades import JournalUpgrade, PartitionLevel


def upgrade(journal: str, *levels: int) -> JournalUpgrade:
    return JournalUpgrade(journal, 9, [PartitionLevel(n, level) for n, level in enumerate(levels)], [], 0)


def test_the_lowest_partition_that_has_a_record_decides_and_the_sentence_says_what_to_do() -> None:
    needed = {"d": 9, "t": 5}
    assert too_low([upgrade("d", 9, 9, 0), upgrade("t", 5)], needed, "moves of pools") == ""
    assert too_low([upgrade("d", 0, 0), upgrade("t", 0)], needed, "moves of pools") == ""
    refused = too_low([upgrade("d", 9, 8), upgrade("t", 5)], needed, "moves of pools")
    assert refused.startswith("d is at level 8, and moves of pools need level 9; finish the update first: `trainhouse upgrade finish")
    assert "t is at level 4" in too_low([upgrade("d", 9), upgrade("t", 4)], needed, "moves of pools")
