"""The code blocks of README.md and docs/, and the shell script that runs those of one page. Pure.

A block is fenced and names its language. With `title="NAME"` it is a file that the commands of its page find in their folder.
A comment on the line before a block says how it is run:

    <!-- not run: REASON -->            it needs a machine, a server or a harm that tests do not have
    <!-- exits with N -->               its last command ends with this code
    <!-- stopped after N s -->          it goes on until it is stopped
    <!-- runs until the end of the page -->
    <!-- waits for: COMMAND -->         the block begins when this command succeeds
    <!-- on a stack of its own -->      it changes a whole stack: tests/integration/test_documentation_alone.py runs it

Words in capitals stand for what the reader has: JOB and OTHER (finished jobs), RUNNING_JOB, WAITING_JOB, NODE.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUN = frozenset({"console", "python"})
SHOWN = frozenset({"text", "mermaid"})
DATA = frozenset({"yaml", "json"})
WAIT_S = 480

_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^`]*)$")
_TITLE = re.compile(r'title="([^"]+)"')
_MARKER = re.compile(r"^<!-- (.*) -->$")
_MARKERS = re.compile(
    r"not run: \S.*|exits with [1-9]\d*|stopped after \d+ s|runs until the end of the page|waits for: \S.*|on a stack of its own"
)
_SUBMIT = 'trainhouse submit --no-code --json "$@" -- '
_GPT = f"{_SUBMIT}python -m trainhouse.workers.examples.gpt"
# A job that runs as long as its page would keep both cores from everything else: its model is small, and its steps take their time.
_PACED = """\
import time
from trainhouse.workers.examples import gpt, text
class Paced(text.Windows):
    def __next__(self):
        time.sleep(0.25)
        return super().__next__()
gpt.Windows = Paced
gpt.main([])
"""
_ID = "python -c 'import json, sys; print(json.loads(sys.stdin.readline())[\"job_id\"])'"
# How a word gets its value, at the first block that has it.
WORDS = {
    "JOB": "JOB=$(submitted --gang 2 -p steps=20 --every-steps 10); trainhouse status $JOB --watch",
    "OTHER": "OTHER=$(submitted --gang 2 -p steps=10); trainhouse status $OTHER --watch",
    "RUNNING_JOB": (
        "RUNNING_JOB=$(lasting --gang 2 -p steps=100000 -p width=32 -p layers=1 -p context=32 -p batch=4); "
        'until_ok \'trainhouse status $RUNNING_JOB --json | python -c "import json, sys; sys.exit(not json.load(sys.stdin)[\\"step\\"])"\''
    ),
    "WAITING_JOB": "WAITING_JOB=$(submitted --gang 4); until_ok 'trainhouse why $WAITING_JOB'",
    "NODE": f"NODE=$(trainhouse nodes --state ALIVE --json | sed -n 1p | {_ID.replace('job_id', 'node')})",
}


@dataclass(frozen=True)
class Block:
    """One block. `line` is that of its fence."""

    page: str
    line: int
    language: str
    title: str
    marker: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def reason_not_run(self) -> str:
        return self.marker.removeprefix("not run: ") if self.marker.startswith("not run: ") else ""

    @property
    def alone(self) -> bool:
        """Whether it needs a stack that no other test uses."""
        return self.marker == "on a stack of its own"

    def runs(self, alone: bool) -> bool:
        """Whether it is one of the blocks that are run on such a stack, or else on the shared one."""
        return self.language in RUN and not self.title and not self.reason_not_run and self.alone == alone

    @property
    def commands(self) -> list[str]:
        """What stands behind `$ `, with its continued lines."""
        found: list[str] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                found.append(line[2:])
            elif found and found[-1].endswith("\\"):
                found[-1] += "\n" + line
        return found


def pages() -> list[Path]:
    """README and every page that is a file."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks_of(path: Path) -> list[Block]:
    """The blocks of a page. Raises ValueError for one that is not closed, has no known language or a marker that is none."""
    return list(_parse(path.relative_to(ROOT).as_posix(), path.read_text()))


def _parse(page: str, text: str) -> Iterator[Block]:
    lines = text.splitlines()
    opened: tuple[int, str] | None = None
    for number, line in enumerate(lines, 1):
        if not (fence := _FENCE.match(line)):
            continue
        if opened is None:
            opened = number, fence["info"]
            continue
        start, info = opened
        opened = None
        marker = _MARKER.match(lines[start - 2]) if start > 1 else None
        yield _checked(page, start, info, marker[1] if marker else "", "\n".join(lines[start : number - 1]) + "\n")
    if opened is not None:
        raise ValueError(f"{page}:{opened[0]}: this block is not closed")


def _checked(page: str, line: int, info: str, marker: str, text: str) -> Block:
    language, title = info.split(" ")[0], _TITLE.search(info)
    if language not in RUN | SHOWN | DATA:
        raise ValueError(
            f"{page}:{line}: a block names its language, one of {', '.join(sorted(RUN | SHOWN | DATA))}; this one says {info!r}"
        )
    if marker and not _MARKERS.fullmatch(marker):
        raise ValueError(f"{page}:{line}: {marker!r} is no marker; see tests/documentation/blocks.py")
    return Block(page, line, language, title[1] if title else "", marker, text)


def script(blocks: list[Block], alone: bool = False) -> str:
    """Bash that runs the blocks of a page in its folder, in their order, and stops at the first command that fails.

    `alone`: those that need a stack of their own, instead of the others.
    """
    lines = [
        "set -eE -o pipefail",
        "background=()",
        "trap 'echo \"FAILED $place: $BASH_COMMAND\" >&2' ERR",
        'trap \'for pid in "${background[@]}"; do kill -TERM -- -$pid; wait $pid || true; done; '
        "for job in $RUNNING_JOB $WAITING_JOB; do trainhouse cancel $job > /dev/null 2>&1 || true; done' EXIT",
        f'until_ok() {{ local end=$(( SECONDS + {WAIT_S} )); until eval "$1" > /dev/null 2>&1; do (( SECONDS < end )); sleep 0.5; done; }}',
        f"submitted() {{ {_GPT} | {_ID}; }}",
        f"lasting() {{ {_SUBMIT}python -c {shlex.quote(_PACED)} | {_ID}; }}",
    ]
    known: set[str] = set()
    for block in blocks:
        if block.title:
            lines.append(f"cat > {shlex.quote(block.title)} <<'END_OF_FILE'\n{block.text}END_OF_FILE")
    for block in blocks:
        if block.runs(alone):
            lines += [f"place={block.place}", *_prepared(block, known), *_run(block)]
    return "\n".join(lines) + "\n"


def _prepared(block: Block, known: set[str]) -> Iterator[str]:
    named = set(re.findall(r"\w+", block.text)) & set(WORDS)
    # One waits because the other runs.
    needed = named | ({"RUNNING_JOB"} if "WAITING_JOB" in named else set())
    for word, preparation in WORDS.items():
        if word in needed - known:
            known.add(word)
            yield preparation
    if block.marker.startswith("waits for: "):
        awaited = block.marker.removeprefix("waits for: ")
        yield f"until_ok {shlex.quote(awaited)}"


def _run(block: Block) -> list[str]:
    if block.language == "python":
        return [f"python - <<'END_OF_FILE'\n{block.text}END_OF_FILE"]
    commands = [re.sub(rf"\b({'|'.join(WORDS)})\b", r"${\1}", command) for command in block.commands]
    shown = [f"echo {shlex.quote('$ ' + command)}" for command in commands]
    if block.marker.startswith("exits with "):
        code = block.marker.removeprefix("exits with ")
        commands[-1] = f"ended=0; {_bare(commands[-1])} || ended=$?; (( ended == {code} ))"
    elif block.marker.startswith("stopped after "):
        seconds = block.marker.split()[2]
        exported = "export " + " ".join(WORDS)
        commands = [
            f"{exported}; ended=0; timeout -s INT {seconds} bash -c {shlex.quote(c)} || ended=$?; (( ended == 0 || ended == 124 ))"
            for c in commands
        ]
    elif block.marker == "runs until the end of the page":
        commands = [f"setsid bash -c {shlex.quote(c)} & background+=($!)" for c in commands]
    return [line for pair in zip(shown, commands, strict=True) for line in pair]


def _bare(command: str) -> str:
    """A command without the comment at its end."""
    return re.sub(r"\s+# .*$", "", command)
