"""Writes the generated pages into a folder: `python -m trainhouse.reference DIR`."""

import sys
from pathlib import Path

from trainhouse.reference.pages import render


def main(arguments: list[str]) -> int:
    """Writes them and prints each path."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m trainhouse.reference DIR\n")
        return 2
    for name, text in render().items():
        path = Path(arguments[0], name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
