"""Model card of a version, in Hugging Face's format: YAML metadata and Markdown, from facts of the store.

Holds: facts stand between two marks and are written anew each time; people's text around them, and metadata that they added, stay as they
are. What is not known says so, and nothing is guessed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from trainhouse.checkpointing.chain.manifest import Manifest
from trainhouse.checkpointing.errors import InvalidStateError
from trainhouse.checkpointing.models.named_version import NamedVersion
from trainhouse.events.model.model_content import ModelContent

BEGIN: Final = "<!-- facts of trainhouse: this part is written anew, write above or below it -->"
END: Final = "<!-- end of the facts -->"
UNKNOWN: Final = "not known"
MOST_TENSORS: Final = 20
_TAG: Final = "trainhouse"
_PEOPLE: Final = ("Intended use", "Limitations", "Training data", "Ethical considerations")
"""Sections of people, which say that they were not written."""


@dataclass(frozen=True)
class EvaluationFacts:
    """One figure of an evaluation. `low` and `high`: its interval, None where there is none."""

    suite: str
    dataset: str
    metric: str
    value: float
    low: float | None = None
    high: float | None = None


def card_of(
    version: NamedVersion,
    content: ModelContent,
    manifest: Manifest | None,
    evaluations: Sequence[EvaluationFacts] | None = None,
    written: str | None = None,
) -> str:
    """The whole card. `manifest`: the checkpoint's, None of a version that is files alone. `evaluations`: None where they are not known
    here. `written`: the card of before, with people's text. Raises InvalidStateError where that cannot be read as a card, or
    huggingface-hub is not installed."""
    try:
        from huggingface_hub import ModelCard
    except ImportError as error:
        raise InvalidStateError("a card needs huggingface-hub: pip install 'trainhouse[models]'") from error
    facts = "\n".join((BEGIN, *_lines(version, content, manifest, evaluations), END))
    try:
        card = ModelCard(written if written is not None else f"---\n{{}}\n---\n\n# {version.name}\n\n{facts}\n\n{_sections()}")
        metadata: dict[str, Any] = card.data.to_dict()  # type: ignore[no-untyped-call]  # theirs has no types
    except ValueError as error:
        raise InvalidStateError(f"the card that is there cannot be read: {error}; mend its metadata, or move it away") from error
    text = card.text if written is None else _replaced(card.text, facts)
    for name, value in _metadata(version, content, metadata).items():
        setattr(card.data, name, value)
    card.text = text
    return f"---\n{card.data.to_yaml()}\n---\n{text}"


def _metadata(version: NamedVersion, content: ModelContent, before: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the metadata that follow from facts; tags and data that people added stay among them."""
    tags = [tag for tag in before.get("tags") or () if isinstance(tag, str)]
    found: dict[str, Any] = {
        "license": content.licence or before.get("license") or "unknown",
        "tags": [*tags, *(tag for tag in (_TAG,) if tag not in tags)],
        "model_name": f"{version.name} {version.staged.semver}",
        "trainhouse_version": version.lineage_id,
        "trainhouse_content": version.staged.content,
    }
    if content.framework is not None:
        found["library_name"] = content.framework.split()[0].lower()
    return found


def _lines(
    version: NamedVersion, content: ModelContent, manifest: Manifest | None, evaluations: Sequence[EvaluationFacts] | None
) -> Iterator[str]:
    staged = version.staged
    trained_by, size = f"run `{content.job_id}`, files that its client logged", f"{sum(f.bytes for f in content.files) / 2**20:.1f} MiB"
    if manifest is not None:
        trained_by = f"job `{content.job_id}`, checkpoint {content.commit}, step {content.step}, {manifest.world_size} ranks"
        size = f"{content.bytes / 2**20:.1f} MiB of checkpoint, {len(manifest.tensors)} tensors"
    yield "\n## Version\n"
    yield from _table(
        ("", ""),
        [
            ("version", f"`{version.lineage_id}`, {staged.semver}"),
            ("content", f"`sha256:{staged.content}`"),
            ("project", version.project),
            ("framework", content.framework or UNKNOWN),
            ("licence", content.licence or UNKNOWN),
            ("trained by", trained_by),
            ("code", f"`sha256:{content.code}`" if content.code else UNKNOWN),
            ("data", ", ".join(f"`{name}`" for name in content.datasets) or UNKNOWN),
            ("size", size),
        ],
    )
    yield "\n## Notes\n"
    yield _quoted(content.notes) if content.notes else f"The registration has no notes ({UNKNOWN})."
    yield "\n## Input and output\n"
    for name, schema in (("input", content.input_schema), ("output", content.output_schema)):
        yield f"Schema of an {name}: {UNKNOWN}.\n" if schema is None else f"Schema of an {name}:\n\n```json\n{_json(schema)}\n```\n"
    yield "\n## Files\n"
    yield from _table(("file", "bytes", "sha256"), [(f"`{file.path}`", str(file.bytes), f"`{file.sha256}`") for file in content.files])
    yield "\n## Metrics of training\n"
    metrics = manifest.metrics if manifest is not None else {}
    yield from _table(("metric", "value at the checkpoint"), [(name, f"{value:.6g}") for name, value in sorted(metrics.items())])
    yield "\n## Evaluations\n"
    if evaluations is None:
        hashes = ", ".join(f"`sha256:{sha256}`" for sha256 in staged.evaluations)
        yield f"Results: {hashes}." if hashes else f"Results of evaluations are {UNKNOWN} here."
    else:
        rows = [(each.suite, each.dataset or UNKNOWN, each.metric, f"{each.value:.6g}", _interval(each)) for each in evaluations]
        yield from _table(("suite", "data", "metric", "value", "interval"), rows)
    yield ""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if not rows:
        yield f"None ({UNKNOWN})."
        return
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(_cell(text) for text in row)} |"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split()).replace("<!--", "&lt;!--")


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.replace("<!--", "&lt;!--").splitlines())


def _json(schema: Mapping[str, Any]) -> str:
    import json

    return json.dumps(schema, indent=2, sort_keys=True).replace("<!--", "\\u003c!--").replace("```", "\\u0060``")


def _interval(each: EvaluationFacts) -> str:
    return UNKNOWN if each.low is None or each.high is None else f"{each.low:.6g} to {each.high:.6g}"


def _sections() -> str:
    return "\n".join(f"## {name}\n\nNot written yet ({UNKNOWN}).\n" for name in _PEOPLE)


def _replaced(text: str, facts: str) -> str:
    """People's text with the facts of now in the place of those of before; at its end where it has none. Raises InvalidStateError."""
    before, begins, rest = text.partition(BEGIN)
    _, ends, after = rest.partition(END)
    if not begins:
        return f"{text.rstrip()}\n\n{facts}\n"
    if not ends or BEGIN in after:
        raise InvalidStateError(f"the card that is there has the line {BEGIN!r} without its end, or twice; mend it, or move it away")
    return f"{before}{facts}{after}"
