"""Definitions of the report's figures: formula and source table of each. Printed at its foot."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Definition:
    """One word of the report."""

    word: str
    formula: str
    source: str


CAUSE_WORDS = {
    "KEPT": "steps that were kept",
    "REWORK": "steps lost (rework)",
    "STARTING": "starting",
    "DATA_WAIT": "waiting for data",
    "SAVE_STALL": "held up by saves",
    "ENDING": "after the last step",
    "UNMEASURED": "jobs without steps",
}

DEFINITIONS = (
    Definition("failure", "an attempt that a FailureBlamed verdict speaks of; the newest verdict counts", "failures (verdicts)"),
    Definition(
        "infrastructure", "failures of the categories NODE, DEVICE, NETWORK, STORAGE, PLATFORM; not USER_CODE, DATA, UNKNOWN", "failures"
    ),
    Definition(
        "device time",
        "for each gang: devices × (given to the gang until free again). A device is an accelerator or a cpu slot; device-hours are "
        "GPU-hours where devices are GPUs. An end that nobody reported is the next attempt's beginning, or the job's end. An attempt that "
        "still runs counts up to its last step",
        "allocations, attempt_facts, jobs",
    ),
    Definition("node time", "device time ÷ devices of the node", "allocations, nodes"),
    Definition("MTBF", "device time (node time) ÷ failures", "allocations, failures"),
    Definition(
        "MTTR",
        "time of the failure → first step that any later attempt of the job logged; p50, p95 (next higher) and worst of the period's "
        "failures. Jobs that log no steps: → RUNNING again. Failures that no attempt followed with a step are not in it",
        "failures (verdicts, step_metrics, statuses_rows)",
    ),
    Definition("goodput", "device time of steps that were kept ÷ device time of jobs that logged steps", "step_metrics, allocations"),
    Definition(
        "steps that were kept",
        "from one mean step before an attempt's first logged step to its last step that no later attempt of the job did again and, where "
        "the job FAILED or was CANCELLED, that a checkpoint holds; less waiting for data and for saves. "
        "An attempt's steps count as equally long",
        "step_metrics, checkpoints, jobs",
    ),
    Definition("steps lost (rework)", "from the last kept step to the attempt's last step; less waiting", "step_metrics"),
    Definition("starting", "from the gang's devices to the beginning of its first step; all of an attempt without a step", "allocations"),
    Definition(
        "waiting for data, held up by saves",
        "the ranks' own totals of an attempt, taken evenly out of the time of its steps",
        "ranks (data_wait_s, save_stall_s)",
    ),
    Definition(
        "after the last step", "from an attempt's last step until its devices were free: hanging, being found, ending", "allocations"
    ),
    Definition(
        "worst nodes",
        "by the sum of failures blamed on the node, losses, quarantines and failed self tests",
        "verdicts",
    ),
    Definition("checkpoints", "saves that became a checkpoint, and those that did not; share failed = failed ÷ both", "checkpoint_facts"),
    Definition("alerts", "fired in the period, or open at its end", "alerts"),
)
