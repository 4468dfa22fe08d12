"""Probes of SQL: statements that read files, write, or reach other machines, through `/v1/query` and on the SQL port itself.

Holds: each statement is built from a grammar of spellings (quoted and escaped names, comments, nesting), so that a list of words does not
decide.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import httpx

from tests.security.campaign.outcome import Outcome
from tests.security.campaign.target import Target

TIMEOUT_S = 30.0


def probe(target: Target, count: int, seed: int) -> Iterator[Outcome]:
    """`count` statements; blocks while each is answered."""
    rng = random.Random(seed)
    folder = target.stack.data_dir
    secret_file = folder / "gateway" / "key"
    secret = secret_file.read_text().strip()
    planted = folder / "clickhouse" / "planted-by-a-probe"
    with httpx.Client(timeout=TIMEOUT_S) as client:
        for _ in range(count):
            statement = _statement(rng, str(secret_file), str(planted))
            way = rng.choice(["viewer", "submitter", "port", "port-get", "port-guest"])
            answer, content = _ask(client, target, way, statement)
            leak = ""
            if secret in content or secret[::-1] in content or secret.encode().hex().upper() in content.upper():
                leak = "the gateway's signing key"
            elif target.canary in content:
                leak = "the victim's canary"
            elif planted.exists():
                leak = f"{planted} was written"
                planted.unlink()
            elif way.startswith("port") and answer == "200":
                leak = "the SQL port answered without a password"
            yield Outcome("sql", way, statement, answer, leak)


def _ask(client: httpx.Client, target: Target, way: str, statement: str) -> tuple[str, str]:
    try:
        if way in ("viewer", "submitter"):
            headers = {"Authorization": f"Bearer {target.tokens[way]}"}
            answer = client.post(f"{target.gateway}/v1/query", json={"query": statement}, headers=headers)
        elif way == "port-get":
            answer = client.get(target.sql, params={"query": statement}, headers={"Origin": "http://evil.example"})
        else:
            headers = {"X-Trainhouse-Guest": "1"} if way == "port-guest" else {}
            answer = client.post(target.sql, content=statement.encode(), headers=headers)
    except httpx.TimeoutException:
        return "timeout", ""
    except httpx.HTTPError as error:
        return type(error).__name__, ""
    return str(answer.status_code), answer.text


def _statement(rng: random.Random, path: str, planted: str) -> str:
    reading = _name(rng, "file")
    choices = [
        f"SELECT {reading}('{path}')",
        f"SELECT hex({reading}('{path}'))",
        f"SELECT reverse({reading}('{path}'))",
        f"SELECT * FROM {reading}('{path}', 'LineAsString')",
        f"SELECT * FROM jobs WHERE length({reading}('{path}')) > 0",
        f"SELECT * FROM (SELECT {reading}('{path}') AS x)",
        f"WITH {reading}('{path}') AS x SELECT x",
        f"SELECT 1 INTO OUTFILE '{planted}'",
        f"SELECT $$ {path} $$ INTO OUTFILE '{planted}' -- $$",
        f"SELECT 1; SELECT {reading}('{path}')",
        f"INSERT INTO FUNCTION {reading}('{planted}', 'CSV', 'x String') VALUES ('x')",
        f"SELECT * FROM {_name(rng, 'url')}('http://127.0.0.1:1/', 'LineAsString')",
        f"SELECT * FROM {_name(rng, 's3')}('http://127.0.0.1:1/b/k', 'LineAsString')",
        f"SELECT * FROM {_name(rng, 'executable')}('id', 'LineAsString', 'x String')",
        f"SELECT * FROM {_name(rng, 'python')}('x')",
        "SELECT * FROM system.processes",
        "SELECT * FROM jobs",
        "SELECT * FROM job_specs",
        "SELECT * FROM logs",
        f"EXPLAIN SELECT {reading}('{path}')",
        f"DESCRIBE TABLE {reading}('{path}')",
        f"SELECT {{f:Identifier}}('{path}')",
        f"SELECT 1 SETTINGS readonly = 0, max_execution_time = 0 UNION ALL SELECT {reading}('{path}')",
        f"ATTACH TABLE x FROM '{path}' (x String) ENGINE = File('LineAsString')",
        f"CREATE TEMPORARY TABLE x ENGINE = File('LineAsString', '{path}') AS SELECT 1",
        f"SELECT * FROM merge('.*', '.*') WHERE {reading}('{path}') != ''",
        f"SELECT arrayMap(x -> {reading}(x), ['{path}'])",
    ]
    return rng.choice(["", "", "/* x */ ", "-- x\n", "\ufeff", "\u200b", "("]) + rng.choice(choices)


def _name(rng: random.Random, name: str) -> str:
    first = f"\\x{ord(name[0]):02x}"
    return rng.choice(
        [
            name,
            name.upper(),
            f"`{name}`",
            f'"{name}"',
            f"`{first}{name[1:]}`",
            f'"{first}{name[1:]}"',
            f"“{name}”",
            f"{name} /**/ ",
            f"{name}\u200b",
            f"`{name[0]}\\{name[1:]}`",
            f"{name}\n",
        ]
    )
