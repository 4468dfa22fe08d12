"""The scan for secrets finds what detect-secrets finds by itself, of each kind, wherever it stands."""

import secrets
import string
from pathlib import Path

import pytest
from detect_secrets.core.scan import get_plugins
from detect_secrets.core.secrets_collection import SecretsCollection
from detect_secrets.settings import default_settings, get_settings

from tests.style.secret_scan import whole_files_first


def drawn(size: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    return "".join(secrets.choice(alphabet) for _ in range(size))


LOW, HEX, DIGITS = string.ascii_lowercase + string.digits, "0123456789abcdef", string.digits
# By the name of the plugin: a line that has nothing else at its ends, with a secret that no file holds.
LINES = {
    "ArtifactoryDetector": lambda: "AKC" + drawn(12),
    "AWSKeyDetector": lambda: "AKIA" + drawn(16, string.ascii_uppercase),
    "AzureStorageKeyDetector": lambda: "AccountKey=" + drawn(86) + "==",
    "BasicAuthDetector": lambda: f"http://somebody:{drawn(12)}@there",
    "CloudantDetector": lambda: "cloudant_pw=" + drawn(64, HEX),
    "DiscordBotTokenDetector": lambda: f"M{drawn(23)}.{drawn(6)}.{drawn(27)}",
    "GitHubTokenDetector": lambda: "ghp_" + drawn(36),
    "GitLabTokenDetector": lambda: "glpat-" + drawn(20),
    "Base64HighEntropyString": lambda: repr("".join(secrets.SystemRandom().sample(string.ascii_letters + string.digits, 40))),
    "HexHighEntropyString": lambda: f'"{HEX}{drawn(8, HEX)}"',
    "IbmCloudIamDetector": lambda: "ibm_api_key=" + drawn(44),
    "IbmCosHmacDetector": lambda: "cos_hmac_secret_access_key=" + drawn(48, HEX),
    "IPPublicDetector": lambda: f"8.{secrets.randbelow(200)}.8.8",
    "JwtTokenDetector": lambda: "eyJhbGciOiJIUzI1NiJ9.eyJhIjoxfQ." + drawn(20),  # pragma: allowlist secret
    "KeywordDetector": lambda: f"password = '{drawn(9)}'",
    "MailchimpDetector": lambda: drawn(32, HEX) + "-us17",
    "NpmDetector": lambda: "//registry/:_authToken=npm_" + drawn(36),  # pragma: allowlist secret
    "OpenAIDetector": lambda: f"sk-{drawn(20)}T3BlbkFJ{drawn(20)}",
    "PrivateKeyDetector": lambda: "-----BEGIN RSA " + "PRIVATE KEY-----",
    "PypiTokenDetector": lambda: "pypi-AgEIcHlwaS5vcmc" + drawn(70),
    "SendGridDetector": lambda: f"SG.{drawn(22)}.{drawn(43)}",
    "SlackDetector": lambda: f"xoxb-{drawn(12, DIGITS)}-{drawn(12, LOW)}",
    "SoftlayerDetector": lambda: "softlayer_key=" + drawn(64, LOW),
    "SquareOAuthDetector": lambda: "sq0csp-" + drawn(43),
    "StripeDetector": lambda: "sk_live_" + drawn(24),
    "TelegramBotTokenDetector": lambda: f"{drawn(9, DIGITS)}:{drawn(35)}",
    "TwilioKeyDetector": lambda: "AC" + drawn(32, LOW),
}
PLACES = {
    "alone": "{}",
    "first": "{}\nb\n",
    "last": "a\n{}",
    "between, before blanks": "a\n{}  \t\nb\n",
    "after words": "a = [\n    f({}),\n]\n",
}


def found(file: Path) -> set[tuple[str, int, str]]:
    collected = SecretsCollection()
    with default_settings():
        get_settings().disable_filters("detect_secrets.filters.common.is_ignored_due_to_verification_policies")  # which asks the services
        collected.scan_file(str(file))
    return {(secret.type, secret.line_number, secret.secret_hash) for _, secret in collected}


@pytest.mark.parametrize("name", ["x.py", "x.md", "x.yaml", "x.toml", "Makefile"])
def test_each_kind_is_found_wherever_it_stands(name: str, tmp_path: Path) -> None:
    seen = set()
    for kind, made in LINES.items():
        for place, text in PLACES.items():
            file = tmp_path / name
            file.write_text(text.format(made()))
            by_lines = found(file)
            with whole_files_first():
                assert found(file) == by_lines, (kind, place, file.read_text())
            seen |= {each[0] for each in by_lines}
    with default_settings():
        kinds = {type(plugin).__name__: plugin.secret_type for plugin in get_plugins()}
    assert set(LINES) == set(kinds), "a plugin came or went: give a line that it finds"
    if name == "x.py":  # detect-secrets leaves out what has no letter, so all addresses
        assert seen == {kind for name, kind in kinds.items() if name != "IPPublicDetector"}


def test_a_line_that_is_allowed_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text(f"{LINES['KeywordDetector']()}  # pragma: allowlist secret\n")
    with whole_files_first():
        assert found(file) == set()
        file.write_text(file.read_text().partition("#")[0])
        assert len(found(file)) == 1
