"""The report in a few sentences, each with what changed against the period before. Pure."""

from collections.abc import Iterator

from trainhouse.projections.report import figure_text
from trainhouse.projections.report.definitions import CAUSE_WORDS
from trainhouse.projections.report.model import WASTE, Compared


def sentences(found: Compared) -> Iterator[str]:
    """Short ones, the most important first; a figure without data is told as such."""
    now = found.now
    if now.empty:
        yield f"No data: nothing ran, failed or was saved in this {now.period.noun}."
        return
    yield _failed(found)
    if now.failures:
        yield _between(found)
        yield _back(found)
    yield _goodput(found)
    if now.nodes:
        worst = now.nodes[0]
        held = (("blamed for {}", "blames", "failure"), ("lost {}", "losses", "time"), ("quarantined {}", "quarantines", "time"))
        facts = [text.format(figure_text.counted(int(worst[key]), noun)) for text, key, noun in held if worst[key]]
        if worst["probes_failed"]:
            facts.append(f"failed {figure_text.counted(int(worst['probes_failed']), 'self test')}")
        yield f"The worst node is {worst['node_id']}: {', '.join(facts)}."
    if now.saves:
        failed = int(now.checkpoints["failed"])
        moved = figure_text.points(now.failed_saves_share, found.before.failed_saves_share, now.period.noun) if failed else ""
        yield f"{figure_text.counted(failed, 'save')} of {now.saves:,} failed{moved}."
    if now.alerts:
        open_ones = sum(int(a["open"]) for a in now.alerts)
        yield f"{figure_text.counted(sum(int(a['fired']) for a in now.alerts), 'alert')} fired, {open_ones:,} still open."


def _failed(found: Compared) -> str:
    now, before = found.now, found.before
    if not now.failures:
        moved = figure_text.change(0, before.failures, now.period.noun) if before.failures else ""
        return f"No attempt failed{moved}."
    categories = ", ".join(f"{r.failures:,} {c}" for c, r in now.by_category.items())
    assert now.total is not None
    moved = figure_text.change(now.failures, None if before.empty else before.failures, now.period.noun)
    return f"{figure_text.counted(now.failures, 'attempt')} of {figure_text.counted(now.total.jobs, 'job')} failed{moved}: {categories}."


def _between(found: Compared) -> str:
    now, before = found.now, found.before
    every = now.between_failures_s(False)
    if every is None:
        return "How far failures are apart is not known: no device time is on record."
    change = figure_text.change(every, before.between_failures_s(False), now.period.noun)
    text = f"One failure came per {figure_text.hours(every)} of device time{change}"
    fleet = now.between_failures_s(True)
    return f"{text}; one of the infrastructure per {figure_text.hours(fleet)}." if fleet else f"{text}; none of the infrastructure."


def _back(found: Compared) -> str:
    total, before, noun = found.now.total, found.before.total, found.now.period.noun
    assert total is not None
    if not total.recovered:
        return "No job that failed has made a step since."
    moved = figure_text.change(total.p50_s, before.p50_s if before else None, noun)
    left = total.failures - total.recovered
    rest = f"; {figure_text.counted(left, 'failure')} had no step after it" if left else ""
    return f"Jobs were back after {figure_text.span(total.p50_s)} at the median{moved}, {figure_text.span(total.worst_s)} at worst{rest}."


def _goodput(found: Compared) -> str:
    now, before = found.now, found.before
    if now.goodput is None:
        return "Goodput: no data, no job logged a step."
    moved = figure_text.points(now.goodput, before.goodput, now.period.noun)
    text = f"{figure_text.share(now.goodput)} of the device time made steps that were kept{moved}"
    most = max(WASTE, key=now.of)
    return f"{text}; most of the rest went to {CAUSE_WORDS[most]}: {figure_text.hours(now.of(most))}." if now.of(most) else f"{text}."
