"""Models as the registry's published decisions have them. Pure.

Holds: folds the same decisions as the registry itself, so that a reader has its models, but for what waits.
"""

from collections.abc import Iterable

from trainhouse.events import Event, GateCondition
from trainhouse.events.model.model_decisions import ModelDecision
from trainhouse.scheduler.core.registry.gate_conditions import conditions
from trainhouse.scheduler.core.registry.registry_fold import fold_registry
from trainhouse.scheduler.core.registry.registry_state import ModelEntry, RegistryState, Version


class RegistryView:
    """Models, folded from their history."""

    def __init__(self) -> None:
        self._state = RegistryState(0)

    @classmethod
    def of(cls, events: Iterable[Event]) -> "RegistryView":
        """Folds a history."""
        view = cls()
        for event in events:
            view.take(event)
        return view

    def take(self, event: Event) -> bool:
        """Folds one decision; passes over what is none, and what was folded already. Returns whether it folded this one."""
        if not isinstance(event, ModelDecision) or event.number != self._state.entry(event.project, event.name).number + 1:
            return False
        fold_registry(self._state, event.at_ms, event)
        self._state.stages.clear()
        return True

    def models(self) -> list[ModelEntry]:
        """All models, by project and name."""
        return [self._state.models[key] for key in sorted(self._state.models)]

    def find(self, project: str, name: str) -> ModelEntry | None:
        """One model."""
        return self._state.model(project, name)


def why(model: ModelEntry, version: Version, now_ms: int) -> tuple[GateCondition, ...]:
    """The conditions of its gate for a version, as they are now."""
    champion = model.get(model.champion)
    return conditions(model.gate, version, None if champion is version else champion, now_ms)
