"""Figures as a person reads them. Pure.

Holds: None is told as NOTHING, never as 0; times carry their unit.
"""

NOTHING = "no data"


def number(value: float | int | None, digits: int = 0) -> str:
    """`1234.5` -> `1,234`."""
    return NOTHING if value is None else f"{value:,.{digits}f}"


def span(seconds: float | None) -> str:
    """`95` -> `1 min 35 s`; under ten seconds with a tenth."""
    if seconds is None:
        return NOTHING
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    left, parts = round(seconds), []
    for size, name in units:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts[:2])


def hours(seconds: float | None) -> str:
    """Device-seconds as hours; more digits where there are few."""
    if seconds is None:
        return NOTHING
    found = seconds / 3600
    return f"{found:,.0f} h" if found >= 100 else f"{found:.1f} h" if found >= 10 else f"{found:.2g} h"


def share(value: float | None) -> str:
    """`0.523` -> `52.3 %`."""
    return NOTHING if value is None else f"{100 * value:.1f} %"


def size(count: int) -> str:
    """Bytes in powers of 1024."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} PiB"


def change(now: float | None, before: float | None, noun: str) -> str:
    """In brackets: what it was in the period before, and by how much that changed."""
    if now is None:
        return ""
    if before is None:
        return f" (no data of the {noun} before)"
    if before == now:
        return f" (as in the {noun} before)"
    if not before:
        return f" (none in the {noun} before)"
    return f" ({100 * (now - before) / before:+.0f} % against the {noun} before)".replace("-", "−")


def points(now: float | None, before: float | None, noun: str) -> str:
    """The same for shares: by how many points."""
    if now is None:
        return ""
    if before is None:
        return f" (no data of the {noun} before)"
    moved = 100 * (now - before)
    return f" ({moved:+.1f} points against the {noun} before)".replace("-", "−")


def counted(count: int, one: str, many: str = "") -> str:
    """`3 jobs`, `1 job`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
