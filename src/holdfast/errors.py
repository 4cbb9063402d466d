"""Every error Holdfast raises, in one tree with one root.

A message names the thing, what was expected and what was found, and where it helps what to do next. Nothing
outside this tree is raised on purpose; the reference page ``docs/reference/errors.md`` draws the tree.
"""


class HoldfastError(Exception):
    """The root: ``except HoldfastError`` catches whatever Holdfast raises on purpose."""


class UsageError(HoldfastError):
    """What was asked for cannot be understood. The command line shows its message and ends with code 2."""


class UnknownWord(HoldfastError):
    """A text that should name a state, an event or a policy, and names none."""


class LedgerError(HoldfastError):
    """A number that is no activity ledger, or a step that the ledger's digits do not allow (L)."""


class CollationError(HoldfastError):
    """Anything wrong with a collation key (K)."""


class MalformedKey(CollationError):
    """A text that is no collation key, or no composite of them."""


class UnknownActivity(CollationError):
    """An activity that the key or the graph does not have."""


class IllegalMove(CollationError):
    """A move on a digit that does not allow it (K2). Nothing was changed."""


class MalformedGraph(CollationError):
    """Edges that do not make a directed graph without cycles."""


class CycleLimitExceeded(CollationError):
    """A cycle went round more often than its limit allows (K8)."""


class IllegalTransition(HoldfastError):
    """A state and an event that have no edge in the transition table (A1, A9). Nothing was changed."""


class LeaseError(HoldfastError):
    """A lease duration that cannot be granted, or a worker that beats twice at once (W1, W9)."""


class RetryPolicyError(HoldfastError):
    """A retry policy, or a question about one, whose numbers make no sense."""


class InstanceConflict(HoldfastError):
    """The id is taken by an instance of another workflow or with another input (G3)."""
