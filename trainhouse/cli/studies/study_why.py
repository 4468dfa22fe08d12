"""Spending of a study and the bound that comes next, for a person.

Holds: pure but for the printing; the document is that of `projections/study_spending`.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from trainhouse.cli.shared import output
from trainhouse.cli.studies.study_lines import print_lines

_BOUNDS: Final = {
    "trials": "trials",
    "device_s": "device time",
    "cost": "cost",
    "wall_s": "time since its creation",
    "failed": "failed trials",
    "stagnation": "stagnation",
}
_TIMES: Final = ("device_s", "wall_s", "stagnation")


def show_why(found: Mapping[str, Any]) -> None:
    """Prints the document of a study."""
    spent, currency = found["spent"], found["spent"]["currency"]
    print_lines([f"study {found['study']} of project {found['project']} is {found['state']}: {found['reason']}"])
    of_money = f", {money(spent['cost'], currency)}" if spent["cost"] is not None else ""
    price = spent["price_per_gpu_hour"]
    at = f" (a device's hour is {money(price, currency)})" if price is not None else ""
    print_lines([f"spent: {output.duration(spent['device_s'])} of device time{of_money}{at}"])
    _show_on(found["on"], currency)
    print_lines([_saved_text(found["saved"])])
    if found["stagnation"]:
        print_lines([_gain_text(found["stagnation"])])
    sys.stdout.write("\n")
    _show_bounds(found["bounds"], currency)
    if found["next"] is not None:
        print_lines(
            [f"next, at the pace since its creation: {_BOUNDS[found['next']]}, about {output.clock(found['bounds'][0]['expected_at_ms'])}"]
        )


def money(amount: float | None, currency: str) -> str:
    """An amount with its currency; empty for none."""
    if amount is None:
        return ""
    return f"{amount:.2f} {currency}".rstrip() if amount >= 0.1 or not amount else f"{amount:.3g} {currency}".rstrip()


def _show_on(rows: Sequence[Mapping[str, Any]], currency: str) -> None:
    if not rows:
        output.remark("no trial has begun")
        return
    columns = ["on trials that", "trials", "device time", "share", "cost"]
    cells = [
        [row["on"], row["trials"], output.duration(row["device_s"]), f"{100 * row['share']:.0f} %", money(row["cost"], currency)]
        for row in rows
    ]
    if not any(each[-1] for each in cells):
        columns, cells = columns[:-1], [each[:-1] for each in cells]
    output.table(columns, cells, right=columns[1:], whole=columns[:1])


def _show_bounds(rows: Sequence[Mapping[str, Any]], currency: str) -> None:
    columns = ("bound", "used", "of", "share", "reached about")
    cells = [
        (
            _BOUNDS[row["bound"]],
            _amount(row["bound"], row["used"], currency),
            _amount(row["bound"], row["of"], currency),
            f"{100 * row['share']:.0f} %",
            output.clock(row["expected_at_ms"]),
        )
        for row in rows
    ]
    output.table(columns, cells, right=("used", "of", "share"), whole=("bound",), drop=("share",))


def _amount(bound: str, amount: float, currency: str) -> str:
    if bound in _TIMES:
        return output.duration(amount)
    return money(amount, currency) if bound == "cost" else f"{amount:.0f}"


def _saved_text(saved: Mapping[str, Any]) -> str:
    if saved["device_s"] is None:
        return f"early stopping saved {saved['how']}" if saved["trials"] == 0 else f"what early stopping saved is {saved['how']}"
    of_money = f", {money(saved['cost'], saved['currency'])}" if saved["cost"] is not None else ""
    return f"early stopping saved about {output.duration(saved['device_s'])} of device time{of_money}; {saved['how']}"


def _gain_text(figures: Mapping[str, Any]) -> str:
    asked = f"at least {figures['min_gain']:g}" if figures["min_gain"] else "any gain"
    over_s = figures["to_device_s"] - figures["from_device_s"]
    return (
        f"the best value, {figures['best']:g} (trial {figures['trial']}), gained {figures['gain']:g} over the last {over_s:.0f} "
        f"device-seconds of trials that ended, {figures['gain_rate']:.3g} for each; asked for is {asked} in {figures['within_device_s']:g}"
    )
