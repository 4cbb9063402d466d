"""The collation key: one digit for each activity, the whole job at a glance (K1-K8).

`digits` says what a digit means and how it may change, `key` has the key itself, `graph` the shape of a flow,
`settle` the edges and joins that decide which move comes next, `dimensions` the rounds of cycles and the items of
fan-outs, and `composite` the text in which the keys of awaited children stand inside their parent's.
"""

from holdfast.core.collation.composite import Composite, compose, decompose
from holdfast.core.collation.digits import LEGAL_MOVES, WORD, Digit, Move
from holdfast.core.collation.dimensions import FIRST, Dimension, item_dimension, nearest, next_round
from holdfast.core.collation.graph import Edge, Graph, Join
from holdfast.core.collation.key import CollationKey, Roster
from holdfast.core.collation.settle import (
    Completed,
    EdgeState,
    Failed,
    FlowOutcome,
    FlowState,
    JoinVerdict,
    Policy,
    Released,
    Settlement,
    TimedOut,
    cancel_all,
    edge_state,
    finish,
    flow_outcome,
    join_verdict,
    restart_cycle,
    trigger,
)

__all__ = [
    "FIRST",
    "LEGAL_MOVES",
    "WORD",
    "CollationKey",
    "Completed",
    "Composite",
    "Digit",
    "Dimension",
    "Edge",
    "EdgeState",
    "Failed",
    "FlowOutcome",
    "FlowState",
    "Graph",
    "Join",
    "JoinVerdict",
    "Move",
    "Policy",
    "Released",
    "Roster",
    "Settlement",
    "TimedOut",
    "cancel_all",
    "compose",
    "decompose",
    "edge_state",
    "finish",
    "flow_outcome",
    "item_dimension",
    "join_verdict",
    "nearest",
    "next_round",
    "restart_cycle",
    "trigger",
]
