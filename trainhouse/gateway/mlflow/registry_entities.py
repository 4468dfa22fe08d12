"""Models and versions as MLflow's client reads them, and its filters over them. Pure.

Holds: MLflow's version is the ordinal, the semver is a tag; `champion` is among the aliases wherever aliases are shown, in searches too.
"""

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from trainhouse.events import ModelStage
from trainhouse.events.model.tracking import is_model_id
from trainhouse.gateway.mlflow.errors import invalid
from trainhouse.gateway.mlflow.filter_language import Condition, Entity, Language, Ordering
from trainhouse.scheduler.core.registry.registry_state import ModelEntry, Version

CHAMPION: Final = ModelStage.CHAMPION.value
LOGGED_MODEL: Final = "trainhouse.logged_model"
"""Tag of a version with the id of the logged model that it was made of."""
OF_PLATFORM: Final = "trainhouse."
"""With what the platform's own tags begin."""
OF_MODELS: Final = Language(
    {
        "name": ("name", False),
        "timestamp": ("last_updated_timestamp", True),
        "last_updated_timestamp": ("last_updated_timestamp", True),
        "creation_timestamp": ("creation_timestamp", True),
    },
    frozenset({Entity.ATTRIBUTE, Entity.TAG}),
)
OF_VERSIONS: Final = Language(
    {
        **OF_MODELS.attributes,
        "version_number": ("version_number", True),
        "run_id": ("run_id", False),
        "source_path": ("source", False),
    },
    frozenset({Entity.ATTRIBUTE, Entity.TAG}),
)
MOST_LIKE_CHARS: Final = 256
"""What a model's name may have."""
_COMPARE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
STAGES: Final = {ModelStage.STAGING: "Staging", ModelStage.CHAMPION: "Production", ModelStage.ARCHIVED: "Archived"}


def model_json(model: ModelEntry) -> dict[str, Any]:
    """One registered model, with the newest version of each stage."""
    newest = {version.stage: version for version in model.versions}
    return {
        **attributes_of(model),
        "description": model.notes,
        "latest_versions": [version_json(model, version) for version in newest.values()],
        "tags": _tags_json(model_tags(model)),
        "aliases": [{"alias": alias, "version": str(version)} for alias, version in aliases_of(model)],
    }


def attributes_of(model: ModelEntry) -> dict[str, Any]:
    """Attributes of a model that a search compares."""
    times = [version.registered_at_ms for version in model.versions]
    return {"name": model.name, "creation_timestamp": min(times, default=0), "last_updated_timestamp": max(times, default=0)}


def model_tags(model: ModelEntry) -> dict[str, str]:
    """Tags of a model: those that people set, and what the registry knows of it, which none of them replaces."""
    known = {"trainhouse.project": model.project}
    return known | dict(model.tags) | known


def version_tags(version: Version) -> dict[str, str]:
    """Tags of a version, as `model_tags`."""
    known = {"trainhouse.semver": version.semver, "trainhouse.content": version.facts.content}
    return known | dict(version.tags) | known


def _tags_json(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in tags.items()]


def version_json(model: ModelEntry, version: Version) -> dict[str, Any]:
    """One version."""
    logged = logged_model_of(version)
    more = {"model_id": logged} if logged else {}
    return more | {
        "name": model.name,
        "version": str(version.version),
        "creation_timestamp": version.registered_at_ms,
        "last_updated_timestamp": version.registered_at_ms,
        "user_id": version.registered_by,
        "current_stage": STAGES[version.stage],
        "description": version.notes,
        "source": source_of(version),
        "run_id": "" if is_model_id(str(version.facts.job_id)) else str(version.facts.job_id),
        "status": "READY",
        "tags": _tags_json(version_tags(version)),
        "aliases": [alias for alias, ordinal in aliases_of(model) if ordinal == version.version],
    }


def aliases_of(model: ModelEntry) -> list[tuple[str, int]]:
    """All aliases of a model, the champion's among them."""
    return sorted([*model.aliases, *([(CHAMPION, model.champion)] if model.champion is not None else [])])


def source_of(version: Version) -> str:
    """Address of a version's checkpoint, as a run's, or of the logged model, or run, whose files it is."""
    if version.facts.commit:
        return f"runs:/{version.facts.job_id}/checkpoints/{version.facts.commit}"
    logged = logged_model_of(version)
    return f"models:/{logged}" if logged else f"runs:/{version.facts.job_id}"


def logged_model_of(version: Version) -> str:
    """Id of the logged model that a version was made of; empty: of none."""
    logged = dict(version.tags).get(LOGGED_MODEL, "")
    return logged if is_model_id(logged) else ""


def tags_of_client(tags: Mapping[str, str], is_copy: bool = False) -> dict[str, str]:
    """Tags of a version that a client may set. Raises MlflowError for one that is the platform's; a client that copies a version sends
    those of the version too, and they are left out, as the copy has its own."""
    own = {key for key in tags if key.startswith(OF_PLATFORM)}
    if own and not is_copy:
        raise invalid(f"tag {min(own)[:200]} is set by the platform alone, as is each that begins with {OF_PLATFORM}; take another name")
    return {key: value for key, value in tags.items() if key not in own}


def keeps(conditions: Iterable[Condition], attributes: dict[str, Any], tags: dict[str, str]) -> bool:
    """Whether a model or version meets all conditions."""
    return all(_meets(each, tags.get(each.key) if each.entity is Entity.TAG else attributes.get(each.key)) for each in conditions)


def ordered(found: list[tuple[dict[str, Any], Any]], orders: Sequence[Ordering]) -> list[tuple[dict[str, Any], Any]]:
    """Pairs of attributes and things, in an order; the least important order is applied first."""
    for order in reversed(orders):
        found = sorted(found, key=lambda pair: pair[0].get(order.key) or 0, reverse=order.descending)
    return found


def _meets(condition: Condition, value: Any) -> bool:
    wanted = condition.value
    match condition.comparator:
        case "IS NULL":
            return value is None
        case "IS NOT NULL":
            return value is not None
    if value is None:
        return condition.comparator == "!="
    compare = _COMPARE.get(condition.comparator)
    if compare is not None:
        return bool(compare(value, wanted))
    if isinstance(wanted, tuple):
        return (value in wanted) == (condition.comparator == "IN")
    flags = re.IGNORECASE | re.DOTALL if condition.comparator == "ILIKE" else re.DOTALL
    return re.fullmatch(_pattern(str(wanted)), str(value), flags) is not None


def _pattern(wanted: str) -> str:
    """The regular expression of a LIKE. Each part between two `%` is taken where it comes first, and never elsewhere: as none is longer
    in one place than in another this finds what there is, and no pattern is tried in as many ways as it has parts."""
    if len(wanted) > MOST_LIKE_CHARS:
        raise invalid(f"a pattern of LIKE has at most {MOST_LIKE_CHARS} characters; this one has {len(wanted)}")
    first, *parts = ("".join("." if char == "_" else re.escape(char) for char in part) for part in wanted.split("%"))
    if not parts:
        return first
    return f"{first}{''.join(f'(?>.*?{part})' for part in parts[:-1])}.*{parts[-1]}"
