"""What a flow does besides calling activities, starting children and waiting: commands of its turns."""

from holdfast.core.event import HistoryEventBase, Payload


class FlowAdvanced(HistoryEventBase, frozen=True, tag="flow_advanced"):
    """Digits that moved, with the edges that were decided and will be asked again (K3). See `flow.progress`.

    `offered`, `caught` and `escaped` say what became of failures that an error edge took to a node (K4). `unclear` has
    edges whose condition could not be evaluated, with the reason: their node fails with it when it starts.
    """

    digits: dict[str, str]
    taken: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    offered: tuple[str, ...] = ()
    caught: tuple[str, ...] = ()
    escaped: tuple[str, ...] = ()
    unclear: dict[int, str] = {}  # noqa: RUF012 - msgspec copies it


class NodeFailed(HistoryEventBase, frozen=True, tag="node_failed"):
    """A node failed by itself: an expression of it did, its wait ran out, or its cycle came to its limit."""

    node: str
    failure: Payload


class NodeCompleted(HistoryEventBase, frozen=True, tag="node_completed"):
    """A node that has no single answer of its own completed: a fan-out, or one that only says something."""

    node: str
    output: Payload


class FanOutStarted(HistoryEventBase, frozen=True, tag="fan_out_began"):
    """A node runs once for each of so many items. `items` are there where they do not all begin at once."""

    node: str
    count: int
    items: Payload | None = None


class CycleRestarted(HistoryEventBase, frozen=True, tag="cycle_restarted"):
    """K8: a cycle runs its target, and everything behind it, once more."""

    node: str
    target: str
    round: int
