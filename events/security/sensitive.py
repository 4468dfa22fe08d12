"""Detection of environment variables that look like secrets, and texts without the values of variables. Pure.

Holds: a variable is refused for its name (`HF_TOKEN`, `DB_PASSWORD`), for a known shape of its value (a cloud's key, a JWT, a private key,
a URL with a password), or for a value that is random as keys are. Numbers, switches and paths are no secrets, unless a number is said to
be a password. `env_allow` of a spec lets a variable pass. What is shown of a spec in tables and answers has `***` for each value of `env`.
Never: shows a value.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from trainhouse.events.model.base import Event
from trainhouse.events.model.default_project import DEFAULT_PROJECT
from trainhouse.events.model.spec import JobSpec

MASKED = "***"
SHORTEST_RANDOM = 20
SHORTEST_HEX = 32
LEAST_BITS = 3.5  # of a character; keys of 20 characters have 4 and more
LEAST_HEX_BITS = 3.0
LEAST_CHANGES = 0.3  # how often letters' case and digits change from one character to the next; in words and names rarely
MAX_SCANNED_CHARS = 65_536

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRET_WORDS = frozenset(
    {"TOKEN", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "PWD", "PASS", "CREDENTIAL", "CREDENTIALS", "CREDS", "APIKEY"}
    | {"ACCESSKEY", "SECRETKEY", "PRIVATEKEY", "AUTHTOKEN", "ACCESSTOKEN", "BEARER", "COOKIE", "JWT"}
)
_PASSWORDS = frozenset({"PASSWORD", "PASSWD", "PASSPHRASE"})
_BEFORE_KEY = frozenset(
    {"API", "ACCESS", "SECRET", "PRIVATE", "SIGNING", "ENCRYPTION", "ACCOUNT", "SERVICE", "AUTH", "LICENSE", "MASTER", "DEPLOY"}
)
_OF_CONTENT = frozenset({"SHA", "SHA1", "SHA256", "DIGEST", "HASH", "COMMIT", "REVISION", "REV", "CHECKSUM", "MD5", "UUID", "FINGERPRINT"})
_NO_SECRET = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?|true|false|yes|no|on|off|none|null|(\.{0,2}|~)/[^\s:@]*", re.I)
_PLACE_WORDS = frozenset({"FILE", "PATH", "DIR", "FOLDER", "NAME", "URL", "URI", "TYPE", "ID"})
_SHAPES = (
    ("a private key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")),
    ("an AWS access key", re.compile(r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b")),
    ("a GitHub token", re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})")),
    ("a GitLab token", re.compile(r"\bgl[a-z]{2,6}-[A-Za-z0-9_-]{20,}")),
    ("a Hugging Face token", re.compile(r"\bhf_[A-Za-z0-9]{30,}")),
    ("an API key", re.compile(r"\b(?:sk|pk|rk)[-_](?:[a-z]+[-_])*[A-Za-z0-9_-]{20,}")),
    ("a Google API key", re.compile(r"\bAIza[A-Za-z0-9_-]{35}")),
    ("a Slack token", re.compile(r"\bxox[abeprs]-[A-Za-z0-9-]{10,}")),
    ("a Vault token", re.compile(r"\bhv[sbr]\.[A-Za-z0-9_-]{20,}")),
    ("a package registry's token", re.compile(r"\b(?:npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,})")),
    ("a JSON web token", re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*")),
    ("an address with a password", re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^/\s:@]{0,256}:[^/\s:@]{1,256}@", re.I)),
    ("an authorization header", re.compile(r"\b(?:Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{16,}")),
)
_RUN = re.compile(r"[A-Za-z0-9+/_-]{20,4096}")
_HEX = re.compile(r"[0-9a-f]{32,}|[0-9A-F]{32,}")
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.I)


@dataclass(frozen=True)
class Sensitive:
    """A variable that looks like a secret, and why."""

    name: str
    why: str


def sensitive_variables(env: Mapping[str, str], allowed: Collection[str] = ()) -> Iterator[Sensitive]:
    """Sensitive variables of an environment, but for the allowed ones."""
    for name, value in env.items():
        why = None if name in allowed else looks_secret(name, value)
        if why:
            yield Sensitive(name, why)


def looks_secret(name: str, value: str) -> str:
    """Returns the reason that a variable looks like a secret; empty if it does not."""
    text = value.strip()[:MAX_SCANNED_CHARS]
    words = [word.upper() for word in _WORD.findall(name)]
    if not text or (_NO_SECRET.fullmatch(text) and not (_PASSWORDS.intersection(words) and re.fullmatch(r"\d{4,}", text))):
        return ""
    if _named_secret(words):
        return "its name says so"
    shape = next((what for what, pattern in _SHAPES if pattern.search(text)), "")
    if shape:
        return f"its value looks like {shape}"
    if not _OF_CONTENT.intersection(words) and any(_random(run) for run in _RUN.findall(_UUID.sub("", text))):
        return "its value is random, as keys and tokens are"
    return ""


def without_shapes(text: str) -> str:
    """A text with `***` for all that has a known shape of a secret."""
    for _, pattern in _SHAPES:
        text = pattern.sub(MASKED, text)
    return text


def _named_secret(words: list[str]) -> bool:
    if words and words[-1] in _PLACE_WORDS:
        return False
    if words == ["PWD"] or words == ["OLD", "PWD"] or words == ["OLDPWD"]:
        return False
    pairs = pairwise(words)
    return bool(_SECRET_WORDS.intersection(words)) or any(b == "KEY" and a in _BEFORE_KEY for a, b in pairs)


def _random(run: str) -> bool:
    if _HEX.fullmatch(run):
        return _bits(run) >= LEAST_HEX_BITS
    kinds = [_kind(character) for character in run]
    pairs = [(a, b) for a, b in pairwise(kinds) if a and b]
    if len(pairs) < SHORTEST_RANDOM // 2 or "0" not in kinds:
        return False
    changes = sum(a != b for a, b in pairs) / len(pairs)
    return changes >= LEAST_CHANGES and _bits(run) >= LEAST_BITS


def _kind(character: str) -> str:
    if character.isdigit():
        return "0"
    return "" if not character.isalpha() else "A" if character.isupper() else "a"


def _bits(text: str) -> float:
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


def refusal(spec: JobSpec) -> str:
    """Returns the reason to refuse a spec for its `env`, and the way out; empty if it is accepted."""
    found = list(sensitive_variables(spec.env, spec.env_allow))
    if not found:
        return ""
    first = found[0]
    reasons = "; ".join(f"{one.name} looks like a secret: {one.why}" for one in found[:10])
    project = "" if spec.project == DEFAULT_PROJECT else f"{spec.project}/"
    return (
        f"env: {reasons}. A spec is kept and shown; a secret is not: `trainhouse secrets set {project}{first.name}` reads the value from "
        f"standard input, and the spec names it by `secrets: [{first.name}]` instead. If it is none, say so: `env_allow: [{first.name}]`"
    )


def without_values(spec: JobSpec) -> JobSpec:
    """The spec with `***` for each value of its `env`."""
    return spec.model_copy(update={"env": dict.fromkeys(spec.env, MASKED)}) if spec.env else spec


_ENV = re.compile(r'"env"\s*:\s*\{(?:\s*"[A-Za-z_][A-Za-z0-9_]*"\s*:\s*"(?:[^"\\]|\\.)*"\s*,?)*', re.S)
_PAIR = re.compile(r'("[A-Za-z_][A-Za-z0-9_]*"\s*:\s*)"(?:[^"\\]|\\.)*"', re.S)
_CLOSED = re.compile(r"\s*\}")
_NAMED = re.compile(r'"env"\s*:\s*')


def shown_json(event: Event) -> str:
    """An event as it may be shown: without what is never shown of it, and masked."""
    return masked_json(event.model_dump_json(exclude=event.unshown))


def masked_json(text: str) -> str:
    """JSON in which each value of each `env` is `***`; text that is cut off within one ends there."""
    if '"env"' not in text:
        return text
    return _ENV.sub(lambda env: _PAIR.sub(rf'\1"{MASKED}"', env[0]), text)


def masked_head(text: str) -> str:
    """The beginning of a record that could not be read, perhaps cut off or no JSON: it ends at an `env` that is not whole."""
    masked = masked_json(text)
    for named in _NAMED.finditer(masked):
        whole = _ENV.match(masked, named.start())
        if whole is None or _CLOSED.match(masked, whole.end()) is None:
            return masked[: whole.end() if whole else named.end()] + MASKED
    return masked
