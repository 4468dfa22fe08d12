"""The pictures of README.md, taken from a running stack: the page of a job in Chromium, and a terminal with commands that were run.

    python -m tests.documentation.pictures DATA_DIR      # a stack that `trainhouse demo --data-dir DATA_DIR` left running

Holds: what is shown is what the stack answered at that moment; the output of a command is only cut at its end.
Never: starts or stops a stack.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

from playwright.sync_api import expect, sync_playwright
from rich.console import Console
from rich.text import Text

from tests.browser.chromium import executable
from tests.support.waiting import until

IMAGES = Path(__file__).parents[2] / "docs/img"
WIDTH, HEIGHT = 1280, 860
COLUMNS = 112
MOST_LINES = 14
PAGE_MS = 120_000
TRAIN = "python -m trainhouse.workers.examples.gpt"


def main(data_dir: str) -> None:
    """Takes both pictures."""
    environment = os.environ | {
        "TRAINHOUSE_DATA_DIR": str(Path(data_dir).resolve()),
        "COLUMNS": str(COLUMNS),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    job = _output("trainhouse submit --name gpt --gang 2 --no-code -p steps=900 --every-steps 100 --json -- " + TRAIN, environment)
    job_id = re.findall(r'"job_id":\s*"([^"]+)"', job)[0]
    waiting = re.findall(
        r'"job_id":\s*"([^"]+)"', _output("trainhouse submit --name later --gang 2 --no-code --json -- " + TRAIN, environment)
    )[0]
    _wait_for(f"trainhouse checkpoints {job_id} --json", 3, environment)
    _page(job_id, environment)
    _terminal(
        [
            "trainhouse nodes",
            "trainhouse status --limit 4",
            f"trainhouse why {waiting}",
            f"trainhouse checkpoints {job_id}",
            'trainhouse sql "SELECT category, round(sum(gpu_seconds), 1) AS gpu_seconds FROM gpu_seconds GROUP BY category"',
        ],
        environment,
    )
    _output(f"trainhouse cancel {job_id} {waiting}", environment)


def _page(job_id: str, environment: dict[str, str]) -> None:
    address = _output(f"trainhouse open {job_id} --print", environment).strip()
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(address)
        page.get_by_role("heading", name="Curves").wait_for(timeout=PAGE_MS)
        expect(page.get_by_text(re.compile("^Loading "))).to_have_count(0, timeout=PAGE_MS)
        page.screenshot(path=IMAGES / "job.png")
        browser.close()


def _terminal(commands: list[str], environment: dict[str, str]) -> None:
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    for command in commands:
        console.print(Text(f"$ {command}", style="bold green"), soft_wrap=True)
        console.print(Text.from_ansi("\n".join(_output(command, environment).rstrip().splitlines()[:MOST_LINES])), soft_wrap=True)
    svg = console.export_svg(title="trainhouse")
    # Without the fonts that rich asks the web for.
    (IMAGES / "terminal.svg").write_text(re.sub(r"\s*@font-face \{.*?\}\n", "", svg, flags=re.DOTALL))


def _wait_for(command: str, lines: int, environment: dict[str, str]) -> None:
    """Waits until a command prints so many lines."""
    until(lambda: len(_output(command, environment).splitlines()) >= lines, command, timeout_s=300.0)


def _output(command: str, environment: dict[str, str]) -> str:
    return subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=True, timeout=120).stdout


if __name__ == "__main__":
    main(sys.argv[1])
