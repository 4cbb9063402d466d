"""The mutants of the engine: small edits, each of which breaks one rule, and the tests that must notice.

`old` is once in its file; a test checks that, so the list keeps in step with the code. Edits are made as short as they
can be: what is around them may change freely.
"""

from typing import Final

from tools.mutations.audits import AUDITS
from tools.mutations.bodies import BODIES
from tools.mutations.calls import CALLS
from tools.mutations.children import CHILDREN
from tools.mutations.code_checks import CODE_CHECKS
from tools.mutations.connections import CONNECTIONS
from tools.mutations.contract import CONTRACT
from tools.mutations.deadlines import DEADLINES
from tools.mutations.executors import EXECUTORS
from tools.mutations.files import STORE_FILES
from tools.mutations.graphs import GRAPHS
from tools.mutations.ids import IDS
from tools.mutations.messages import MESSAGES
from tools.mutations.methods import OBJECTS
from tools.mutations.metrics import METRICS
from tools.mutations.mutant import Mutant
from tools.mutations.open_contract import OPEN_CONTRACT
from tools.mutations.optimistic import MANY_AT_ONCE
from tools.mutations.pauses import PAUSING
from tools.mutations.queries import ASKING, SENDING
from tools.mutations.requests_from_outside import FROM_OUTSIDE
from tools.mutations.restoring import RESTORING
from tools.mutations.retention import RETENTION
from tools.mutations.running import CLIENT, REPLAY, RUNTIME
from tools.mutations.search import FOUND
from tools.mutations.shell import SHELL
from tools.mutations.storage import STATEMENTS, STORE
from tools.mutations.streams import KEPT_AND_STREAMED
from tools.mutations.tracing import TRACING
from tools.mutations.versions import VERSIONS
from tools.mutations.wakeups import WAKEUPS
from tools.mutations.workers import WORKERS

__all__ = ["MUTANTS", "Mutant"]

MUTANTS: Final[tuple[Mutant, ...]] = (
    STATEMENTS
    + STORE
    + STORE_FILES
    + CALLS
    + IDS
    + MESSAGES
    + KEPT_AND_STREAMED
    + GRAPHS
    + ASKING
    + SENDING
    + OBJECTS
    + DEADLINES
    + CHILDREN
    + BODIES
    + EXECUTORS
    + RUNTIME
    + REPLAY
    + CLIENT
    + WORKERS
    + WAKEUPS
    + CONNECTIONS
    + MANY_AT_ONCE
    + AUDITS
    + CONTRACT
    + CODE_CHECKS
    + FROM_OUTSIDE
    + PAUSING
    + OPEN_CONTRACT
    + SHELL
    + FOUND
    + RESTORING
    + RETENTION
    + METRICS
    + VERSIONS
    + TRACING
)
