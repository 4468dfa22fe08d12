"""Decision to announce the node's key again, by the scheduler's record of it.

Holds: pure. A key that was refused, because the node had another one, is announced as soon as that one is forgotten: nobody needs to
restart the agent. A key that counted and was then forgotten is not: an operator took its right away, it may be stolen, and an agent that
announced it would give it back at once.
Never: reads or makes a key.
"""

from dataclasses import dataclass

from trainhouse.events import NodeKeyed


@dataclass(slots=True)
class OwnKey:
    """State of this agent's key. `public_key` is empty where the agent does not sign."""

    node_id: str
    pool: str
    public_key: str
    counted: bool = False

    def on_node_keyed(self, event: NodeKeyed) -> bool:
        """Takes in what the scheduler says; whether the agent is to register anew."""
        if (event.node_id, event.pool) != (self.node_id, self.pool) or not self.public_key:
            return False
        if event.public_key:
            self.counted = self.counted or event.public_key == self.public_key
            return False
        return not self.counted
