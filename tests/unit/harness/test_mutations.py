"""The table of faults fits the sources: each text stands where it is said to be, once, and each test that is named is there."""

from __future__ import annotations

import pytest

from tests.mutations.__main__ import ROOT, file_of, files_of
from tests.mutations.table import MUTATIONS, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: f"{m.module.removeprefix('trainhouse.')}: {m.old.strip()}")
def test_a_fault_can_be_put_in(mutation: Mutation) -> None:
    source = (ROOT / file_of(mutation.module)).read_text()
    assert source.count(mutation.old) == 1 and mutation.old != mutation.new
    compile(source.replace(mutation.old, mutation.new), mutation.module, "exec")
    assert all((ROOT / file).is_file() for file in files_of(mutation))


def test_there_are_sixty() -> None:
    assert len(set(MUTATIONS)) >= 60
