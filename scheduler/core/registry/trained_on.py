"""Data that a version was trained on, by its facts. Pure.

Holds: where one side names no hash, a dataset is another's if they have the same name; a split that is not named is all of it. Of a
dataset without a known split it is not known which samples were trained on: only a result that names its split counts there.
"""

from typing import Final

from trainhouse.events import VersionFacts

SPEC: Final = "spec"
"""What is missing of a version's lineage where it is not known whether its job names data."""
_HASHED: Final = "@sha256:"


def trained_on(facts: VersionFacts, dataset: str, split: str | None) -> str:
    """The first of the data that a version was trained on which has samples of a dataset's split (None: all of it); empty: none has."""
    for each in facts.splits:
        of, _, trained = each.partition("/")
        if is_same(of, dataset) and (split is None or trained in ("", split)):
            return each
    return next((each for each in facts.data if split is None and is_same(each, dataset)), "")


def is_same(one: str, other: str) -> bool:
    """Returns whether two names may be of one dataset."""
    if one == other:
        return True
    both_hashed = _HASHED in one and _HASHED in other
    return not both_hashed and one.partition("@")[0] == other.partition("@")[0]


def with_data(facts: VersionFacts, data: tuple[str, ...], splits: tuple[str, ...], most: int) -> VersionFacts:
    """The facts with data and splits besides, at most `most` of each, the new ones first; what is there by a hash is not added by a tag."""
    new = [each for each in data if not any(is_same(each, known) for known in facts.data)]
    all_data = tuple(dict.fromkeys((*new, *facts.data)))[:most]
    missing = tuple(each for each in facts.missing if each != "data" or not all_data)
    return facts.model_copy(update={"data": all_data, "splits": tuple(dict.fromkeys((*splits, *facts.splits)))[:most], "missing": missing})
