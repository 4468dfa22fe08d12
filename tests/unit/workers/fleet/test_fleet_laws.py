"""Laws of an emulated fleet under random orders and faults."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fleet_stage import Stage, stage
from tests.support.profiles import examples

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("allocate"), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)),
        st.tuples(st.just("release"), st.integers(0, 3), st.sampled_from([0, 1]), st.just(0)),
        st.tuples(st.just("restart"), st.integers(0, 3), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("silent"), st.integers(0, 3), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 4000), st.just(0), st.just(0)),
    ),
    max_size=25,
)


def _play(s: Stage, steps: list[tuple[str, int, int, int]]) -> list[tuple[str, str]]:
    epochs: dict[int, int] = {}
    for kind, a, b, c in steps:
        if kind == "allocate":
            epochs[a] = epochs.get(a, 0) + 1
            s.allocate(f"j{a}", {b: [a], c: [a]} if b != c else {b: [a]}, epoch=epochs[a])
        elif kind == "release" and a in epochs:
            s.release(f"j{a}", epochs[a], float(b))
        elif kind in ("restart", "silent"):
            s.strike(a, kind, float(b))
        elif kind == "wait":
            s.run(a)
        _no_device_has_two(s)
    s.run(60_000)
    return [(t, str(e.id)) for t, e in s.records.sent]


def _no_device_has_two(s: Stage) -> None:
    for node in s.fleet._by_index:
        alive = [d for f in node.disk.folders.values() if f.ranks_left for d in f.placement.devices]
        assert len(alive) == len(set(alive)), node.node_id


@settings(max_examples=examples(60))
@given(STEPS)
def test_routing_changes_nothing_that_reading_everything_would(steps: list[tuple[str, int, int, int]]) -> None:
    """Each node is told only what concerns it; a fleet whose nodes all hear everything says the same."""
    routed, flooded = stage(durations="3"), stage(durations="3")
    flooded.fleet._concerned = lambda event: list(flooded.fleet.nodes)  # type: ignore[method-assign]
    assert sorted(_play(routed, steps)) == sorted(_play(flooded, steps))
