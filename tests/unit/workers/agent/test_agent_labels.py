"""A node's labels: from the environment, from the file, and into its registration."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from trainhouse.workers.agent.core import AgentState, Identity
from trainhouse.workers.agent.node.devices import CpuSlots
from trainhouse.workers.agent.node.registration import NodeFacts
from trainhouse.workers.agent.settings import AgentSettings

LABELS = {"rack": "r7", "nvlink": "n1/0", "spot": "true"}


@pytest.mark.parametrize(
    "text", ["rack=r7,nvlink=n1/0,spot=true", " rack = r7 , nvlink=n1/0, spot=true,", '{"rack":"r7","nvlink":"n1/0","spot":"true"}']
)
def test_labels_from_the_environment(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TRAINHOUSE_AGENT_LABELS", text)
    assert AgentSettings().labels == LABELS


def test_labels_from_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "trainhouse.toml"
    path.write_text('[agent.labels]\nrack = "r7"\nnvlink = "n1/0"\nspot = "true"\n')
    monkeypatch.setenv("TRAINHOUSE_CONFIG", str(path))
    assert AgentSettings().labels == LABELS


def test_what_is_no_label_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINHOUSE_AGENT_LABELS", "rack=r7,pod")
    with pytest.raises(ValidationError, match="'pod' is no label; write name=value"):
        AgentSettings()


def test_labels_reach_the_registration() -> None:
    facts = NodeFacts("127.0.0.1", (1,), LABELS, CpuSlots("n", 1), 1.0, 1)
    registered = facts.registration(AgentState(Identity("n", "boot", "inc", "p")))
    assert registered.labels == LABELS
