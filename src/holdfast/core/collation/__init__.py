"""The collation key: one digit for each activity, the whole job at a glance (K1-K8).

`digits` says what a digit means and how it may change, `key` has the key itself, `graph` the shape of a flow,
`dimensions` the rounds of cycles and the items of fan-outs, and `composite` the text in which the keys of awaited
children stand inside their parent's. What decides which digit moves next is in `core.flow`.
"""

from holdfast.core.collation.composite import Composite, compose, decompose
from holdfast.core.collation.digits import LEGAL_MOVES, WORD, Digit, Move
from holdfast.core.collation.dimensions import FIRST, Dimension, item_dimension, nearest, next_round
from holdfast.core.collation.graph import Graph, GraphEdge, Join
from holdfast.core.collation.key import ActivityOrder, CollationKey

__all__ = [
    "FIRST",
    "LEGAL_MOVES",
    "WORD",
    "ActivityOrder",
    "CollationKey",
    "Composite",
    "Digit",
    "Dimension",
    "Graph",
    "GraphEdge",
    "Join",
    "Move",
    "compose",
    "decompose",
    "item_dimension",
    "nearest",
    "next_round",
]
