"""Commands by the sections of the help: name, module, and the first sentence of its help.

Holds: pure data; `trainhouse --help` imports no command, and a command imports no other. A test holds it against the commands themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class IndexedCommand:
    """One command or group. `modules`: below `trainhouse.cli`, in the order in which they register."""

    help: str
    modules: tuple[str, ...]


def _of(help: str, *modules: str) -> IndexedCommand:
    return IndexedCommand(help, modules)


SECTIONS: Final[Mapping[str, Mapping[str, IndexedCommand]]] = {
    "Jobs": {
        "init": _of("Write a spec for a script, and show the lines for its curves and checkpoints; change no file.", "init.init_command"),
        "submit": _of("Submit a job: a command after `--`, or a spec from a YAML file (options go on top of it).", "jobs.submit"),
        "status": _of("List jobs and their states, newest first; or show one job in full.", "jobs.job_status"),
        "logs": _of("Print the output of a job's ranks.", "jobs.logs"),
        "why": _of(
            "Show why a job is pending: its needs, refusals and by how much, the changes that would unblock it, and its expected start.",
            "jobs.why",
        ),
        "events": _of("List all events of a job, one line an event, oldest first.", "jobs.job_events"),
        "cancel": _of("Cancel jobs: SIGTERM, a grace time, then SIGKILL.", "jobs.changes"),
        "change": _of("Change priority or limits of a job that has not ended, and wait until the change counts.", "jobs.changes"),
        "rerun": _of("Submit a job again: same code, environment, data, seed and gang; a new id.", "jobs.changes"),
        "tag": _of("Set, remove and list tags of a job, and its note: those that MLflow's client has, too.", "tags.tag_command"),
        "review": _of("Send a job to review, or end the review of a job that is NEEDS_REVIEW; wait until that counts.", "jobs.changes"),
        "study": _of("Search hyperparameters: create studies, watch their trials, and show the best.", "studies.study_commands"),
        "top": _of("Show jobs, nodes and queue, live.", "top.command"),
        "open": _of("Open the web pages in a browser, or print their address.", "stack.open"),
    },
    "Interactive work": {
        "shell": _of(
            "Open a terminal in a job: one of its own on as many devices as asked, or one that runs.", "interactive.shell_command"
        ),
        "notebook": _of(
            "Open Jupyter in a job of its own, or in one that runs, at a port of this machine.", "interactive.notebook_command"
        ),
        "ssh-config": _of("Print the lines of ~/.ssh/config by which ssh and VS Code reach interactive jobs.", "interactive.ssh_commands"),
        "ssh-proxy": _of("Join ssh's stream with an interactive job; ssh runs it, by the lines of ssh-config.", "interactive.ssh_commands"),
    },
    "Checkpoints and data": {
        "checkpoints": _of("List the checkpoints of a job, oldest first: a restart begins from the newest good one.", "jobs.job_status"),
        "checkpoint": _of("Tag single checkpoints, verify, delete, export and import them.", "jobs.checkpoint_commands"),
        "data": _of(
            "Publish datasets in versions that never change; show, compare, verify and grant them.",
            "data.dataset_commands",
            "jobs.prepare_command",
        ),
        "artifact": _of(
            "Store tokenizers, preprocessing, models and files in versions; list, get and verify them.", "artifacts.artifact_commands"
        ),
        "models": _of(
            "Register versions of models; promote, approve, archive and roll back by their gate.",
            "models.registry_commands",
            "models.version_files",
            "models.report_command",
            "models.evidence_commands",
            "models.drift_command",
            "models.observation_commands",
        ),
        "import": _of("Import runs that were logged elsewhere.", "jobs.import_runs"),
    },
    "Ranks of a job": {
        "stack": _of("Show every rank's Python stack, now; or as it was when an attempt was found to hang.", "jobs.rank_inspection"),
        "profile": _of(
            "Record the next steps of chosen ranks by torch's profiler; each trace becomes an artifact of the job.", "jobs.rank_inspection"
        ),
        "exec": _of("Run a command beside a rank: in its folder, with its environment, as its user.", "jobs.rank_inspection"),
    },
    "Questions and reports": {
        "sql": _of("Run a read-only query in ClickHouse's SQL.", "data.sql_query"),
        "alerts": _of("List alerts that hold; show their rules, and try rules on the past.", "data.alerts"),
        "slo": _of(
            "Show the platform's objectives: target, what was reached, what is left of the error budget, how fast it burns.",
            "data.objectives",
        ),
        "report": _of(
            "Write reports on a cluster; list, show and save those of projects; share one run by a link.",
            "data.report",
            "reports.project_reports",
        ),
        "schemas": _of("Print or write the JSON Schemas of all events, and an AsyncAPI 3 document of all topics.", "data.sql_query"),
    },
    "Fleet": {
        "nodes": _of("List machines, devices and what runs there; times are of the last heartbeat.", "fleet.node_list"),
        "node": _of("Close a machine to new gangs, or open it again.", "fleet.node_commands"),
        "pool": _of("Create, move and show pools: groups of nodes that are scheduled together.", "fleet.pools"),
        "policy": _of("Show, compare and apply policies: who gets which devices of a pool.", "fleet.policies"),
        "what-if": _of(
            "Re-run the recorded history in the simulator, under the recorded policy and under another, and print what would differ.",
            "fleet.what_if",
        ),
        "simulate": _of("Run a trace through the scheduler in virtual time, and print how jobs fared under each policy.", "fleet.simulate"),
        "fleet": _of("Emulate a fleet of nodes over the real brokers; only what their ranks do is scripted.", "fleet.emulated_fleet"),
    },
    "Projects and access": {
        "project": _of(
            "Declare and show projects: members, what jobs may be for, and limits.",
            "stack.project_access",
            "stack.project_topics",
            "stack.project_account",
        ),
        "token": _of("Create, show and revoke tokens for the gateway: who may do what, in which projects.", "stack.token"),
        "secrets": _of("Keep secrets of this machine's agent: named by specs, seen by ranks alone.", "stack.secret"),
        "audit": _of("List and verify the audit: every access to the gateway and to nodes, allowed or refused.", "data.audit_trail"),
        "operations-key": _of(
            "Make a key that signs requests to agents, unless the file holds one, and print what agents must know of it.",
            "jobs.rank_inspection",
        ),
    },
    "The stack on this machine": {
        "doctor": _of(
            "Check this machine, the deployment that settings name, and a spec; exit code 1 where something keeps jobs from running.",
            "doctor.doctor_command",
        ),
        "up": _of(
            "Start Kafka, the object store, ClickHouse, the control plane and a node agent, and wait until everything answers.",
            "stack.local_stack",
        ),
        "down": _of("Stop everything; the data stays, and `up` goes on where it was.", "stack.local_stack"),
        "ps": _of("Show every part: process, state, how often it died and was started again, addresses, log file.", "stack.local_stack"),
        "env": _of('Print the endpoints and keys as shell exports: `eval "$(trainhouse env)"`.', "stack.local_stack"),
        "demo": _of("Start a stack if none is up, train a small GPT on two ranks, follow it, and sum up.", "stack.demo"),
        "credentials": _of("List, rotate and retire passwords and keys of the stack on this machine.", "stack.credentials"),
    },
    "Operation": {
        "run": _of(
            "Run one process of the platform in the foreground, by settings alone.",
            "stack.run",
        ),
        "replay": _of(
            "Read the journals again: recompute every decision (exit code 1 where one differs), or show the cluster as it was.",
            "data.replay",
        ),
        "upgrade": _of("Show and finish updates of the control plane.", "stack.upgrade"),
        "journal": _of("Repair the journals of the control plane.", "data.journal_repair"),
        "projections": _of("Compare the SQL tables by hashes, or build them anew from the topics.", "data.table_copies"),
        "archive": _of(
            "Copy the journals (decisions, directory, admission, registry) to the object store.",
            "data.archive",
        ),
        "expire": _of(
            "Write tombstones for what ended `retention.status_days` ago (90 by default).",
            "data.expire",
        ),
        "store": _of("Sweep the object store, and record the owners of old jobs.", "data.store_sweep"),
        "topics": _of(
            "List topics, with how many partitions they have on the brokers and how many are recorded; exit code 1 where these differ.",
            "stack.partitions",
        ),
    },
}
COMMANDS: Final[Mapping[str, IndexedCommand]] = {name: command for section in SECTIONS.values() for name, command in section.items()}
