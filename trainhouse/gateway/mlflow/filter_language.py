"""MLflow's filter language and orders, read into conditions.

    metrics.loss < 0.5 and params.model = 'gpt' and tags.`a b` LIKE '%x%' and attributes.run_id IN ('r1', 'r2')

Holds: pure; a comparison names an entity, a comparator that the entity has, and a value of its kind; comparisons are joined by AND only.
Raises MlflowError that says what is wrong where. Never: makes SQL; see `search`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from trainhouse.gateway.mlflow.errors import invalid

Value = str | float | tuple[str, ...] | None


class Entity(StrEnum):
    """Entity of a comparison."""

    METRIC = "metrics"
    PARAMETER = "params"
    TAG = "tags"
    ATTRIBUTE = "attributes"
    DATASET = "datasets"


@dataclass(frozen=True)
class Condition:
    """One comparison. `value` is None of IS NULL and IS NOT NULL."""

    entity: Entity
    key: str
    comparator: str
    value: Value


@dataclass(frozen=True)
class Ordering:
    """One order."""

    entity: Entity
    key: str
    descending: bool


@dataclass(frozen=True)
class Language:
    """Attributes by the names that people write; True: a number."""

    attributes: Mapping[str, tuple[str, bool]]
    entities: frozenset[Entity]


_WORDS: Final = {
    "metric": Entity.METRIC,
    "metrics": Entity.METRIC,
    "param": Entity.PARAMETER,
    "params": Entity.PARAMETER,
    "parameter": Entity.PARAMETER,
    "parameters": Entity.PARAMETER,
    "tag": Entity.TAG,
    "tags": Entity.TAG,
    "attr": Entity.ATTRIBUTE,
    "attribute": Entity.ATTRIBUTE,
    "attributes": Entity.ATTRIBUTE,
    "run": Entity.ATTRIBUTE,
    "dataset": Entity.DATASET,
    "datasets": Entity.DATASET,
}
RUNS: Final = Language(
    {
        "run_id": ("run_id", False),
        "run_name": ("run_name", False),
        "run name": ("run_name", False),
        "Run name": ("run_name", False),
        "Run Name": ("run_name", False),
        "status": ("status", False),
        "user_id": ("user_id", False),
        "artifact_uri": ("artifact_uri", False),
        "start_time": ("start_time", True),
        "created": ("start_time", True),
        "Created": ("start_time", True),
        "end_time": ("end_time", True),
    },
    frozenset(Entity),
)
EXPERIMENTS: Final = Language(
    {
        "name": ("name", False),
        "experiment_id": ("experiment_id", False),
        "creation_time": ("creation_time", True),
        "last_update_time": ("last_update_time", True),
    },
    frozenset({Entity.ATTRIBUTE, Entity.TAG}),
)
LOGGED_MODELS: Final = Language(
    {
        "model_id": ("model_id", False),
        "name": ("name", False),
        "model_type": ("model_type", False),
        "status": ("status", False),
        "source_run_id": ("source_run_id", False),
        "creation_time": ("creation_time", True),
        "creation_timestamp": ("creation_time", True),
        "last_updated_timestamp": ("last_updated_time", True),
    },
    frozenset({Entity.ATTRIBUTE, Entity.PARAMETER, Entity.TAG}),
)
_DATASET_KEYS: Final = frozenset({"name", "digest", "context"})
_NUMERIC: Final[tuple[str, ...]] = ("=", "!=", "<", "<=", ">", ">=")
_TEXT: Final[tuple[str, ...]] = ("=", "!=", "LIKE", "ILIKE")
_LISTS: Final = ("IN", "NOT IN")
_NULLS: Final = ("IS NULL", "IS NOT NULL")
_TOKEN: Final = re.compile(
    r"\s+|(?P<name>(?:[A-Za-z_][\w/-]*|`[^`]*`|\"[^\"]*\")(?:\.(?:`[^`]*`|\"[^\"]*\"|[\w./:@+-]+))?)"
    r"|(?P<text>'[^']*')|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<sign><=|>=|!=|=|<|>)|(?P<mark>[(),])"
)
MAX_CONDITIONS: Final = 100


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str

    @property
    def word(self) -> str:
        return self.text.upper() if self.kind == "name" else ""


def parse_filter(text: str, language: Language) -> list[Condition]:
    """The conditions of a filter; none of an empty one."""
    tokens = _Tokens(text)
    found: list[Condition] = []
    while not tokens.ended:
        if found:
            tokens.expect_word("AND")
        found.append(_condition(tokens, language))
        if len(found) > MAX_CONDITIONS:
            raise invalid(f"the filter has more than {MAX_CONDITIONS} comparisons")
    return found


def parse_orders(orders: Sequence[str], language: Language) -> list[Ordering]:
    """The orders, the most important first."""
    found = []
    for text in orders:
        body, descending = text.strip(), False
        # By the last white space: a regular expression would look at each run of it to its end, from each place in it.
        *before, last = body.rsplit(None, 1) or [""]
        if before and last.upper() in ("ASC", "DESC"):
            body, descending = before[0], last.upper() == "DESC"
        tokens = _Tokens(body)
        entity, key = _identifier(tokens.take(), language)
        if not tokens.ended or entity is Entity.DATASET:
            raise invalid(f"order_by {text!r}: write a column and ASC or DESC, such as `metrics.loss DESC`")
        found.append(Ordering(entity, key, descending))
    return found


class _Tokens:
    """The tokens of a text, one after the other."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._all = list(_tokens(text))
        self._at = 0

    @property
    def ended(self) -> bool:
        return self._at >= len(self._all)

    def take(self) -> _Token:
        if self.ended:
            raise invalid(f"the filter {self._text!r} ends too early")
        self._at += 1
        return self._all[self._at - 1]

    def expect_word(self, word: str) -> None:
        token = self.take()
        if token.word != word:
            raise invalid(f"the filter {self._text!r} has {token.text!r} where {word} is due; comparisons are joined by AND only")


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise invalid(f"the filter {text!r} cannot be read from {text[at : at + 20]!r} on")
        at = match.end()
        if match.lastgroup is not None:
            found.append(_Token(match.lastgroup, match.group()))
    return found


def _identifier(token: _Token, language: Language) -> tuple[Entity, str]:
    if token.kind != "name":
        raise invalid(f"{token.text!r} is no column; write metrics.NAME, params.NAME, tags.NAME or an attribute")
    word, dot, key = token.text.partition(".") if token.text[0] not in '`"' else (token.text, "", "")
    if not dot:
        word, key = "attributes", word
    entity = _WORDS.get(word.strip('`"').lower())
    key = key.strip("`") if key.startswith("`") else key.strip('"')
    if entity is None or entity not in language.entities:
        known = ", ".join(sorted(e.value for e in language.entities))
        raise invalid(f"{word!r} is nothing to compare; there are {known}")
    if entity is Entity.ATTRIBUTE:
        if key not in language.attributes:
            raise invalid(f"there is no attribute {key!r}; there are {', '.join(sorted(language.attributes))}")
        key = language.attributes[key][0]
    if entity is Entity.DATASET and key not in _DATASET_KEYS:
        raise invalid(f"a dataset has no {key!r}; it has {', '.join(sorted(_DATASET_KEYS))}")
    if not key:
        raise invalid(f"{token.text!r} names nothing")
    return entity, key


def _condition(tokens: _Tokens, language: Language) -> Condition:
    entity, key = _identifier(tokens.take(), language)
    comparator = _comparator(tokens)
    numeric = entity is Entity.METRIC or (entity is Entity.ATTRIBUTE and dict(language.attributes.values())[key])
    allowed = _NUMERIC if numeric else _TEXT
    if not numeric:
        allowed += _NULLS if entity in (Entity.PARAMETER, Entity.TAG) else _LISTS
    if comparator not in allowed:
        raise invalid(f"{entity.value}.{key} cannot be compared by {comparator}; it can by {', '.join(allowed)}")
    if comparator in _NULLS:
        return Condition(entity, key, comparator, None)
    if comparator in _LISTS:
        return Condition(entity, key, comparator, _list(tokens))
    return Condition(entity, key, comparator, _number(tokens.take(), key) if numeric else _string(tokens.take(), key))


def _comparator(tokens: _Tokens) -> str:
    token = tokens.take()
    if token.kind == "sign" or token.word in ("LIKE", "ILIKE", "IN"):
        return token.word or token.text
    if token.word == "NOT":
        tokens.expect_word("IN")
        return "NOT IN"
    if token.word == "IS":
        after = tokens.take()
        if after.word == "NOT":
            tokens.expect_word("NULL")
            return "IS NOT NULL"
        if after.word == "NULL":
            return "IS NULL"
    raise invalid(f"{token.text!r} is no comparator")


def _number(token: _Token, key: str) -> float:
    if token.kind != "number":
        raise invalid(f"{key} is compared with a number, not with {token.text!r}")
    return float(token.text)


def _string(token: _Token, key: str) -> str:
    if token.kind == "text" or (token.kind == "name" and token.text.startswith('"')):
        return token.text[1:-1]
    raise invalid(f"{key} is compared with text in quotes, not with {token.text}")


def _list(tokens: _Tokens) -> tuple[str, ...]:
    opened = tokens.take()
    if opened.text != "(":
        raise invalid("IN is followed by a list in parentheses")
    found = []
    while True:
        found.append(_string(tokens.take(), "a list"))
        after = tokens.take()
        if after.text == ")":
            return tuple(found)
        if after.text != ",":
            raise invalid(f"a list has {after.text!r} where a comma is due")
