"""Policies as files: those that come with Trainhouse (`*.yaml` here), and how any policy file is read, refused and compared."""

from trainhouse.events.runtime.yaml_lines import line_of
from trainhouse.scheduler.policies.diff import FieldChange, diff
from trainhouse.scheduler.policies.load import DEFAULT_NAME, FaultLine, PolicyError, load, names, parse, read_text, refusal

__all__ = ["DEFAULT_NAME", "FaultLine", "FieldChange", "PolicyError", "diff", "line_of", "load", "names", "parse", "read_text", "refusal"]
