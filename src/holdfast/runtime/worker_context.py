"""The parts that all other parts of one worker share, and the options that a worker is made with."""

import msgspec

from holdfast.authoring.launcher import Launcher
from holdfast.authoring.provided import ContextFactory
from holdfast.authoring.registry import Registry
from holdfast.authoring.retention import Retention
from holdfast.payloads.limits import PayloadLimit
from holdfast.runtime.committer import Committer
from holdfast.runtime.provided_context import ProvidedContext
from holdfast.runtime.session import StoreSession
from holdfast.runtime.signals import PollSignal
from holdfast.runtime.worker_lease import WorkerLease
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Failed, Outcome


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The checked options of a worker."""

    queues: tuple[str, ...]
    max_activities: int
    cache_size: int
    lease_ms: int
    loop_timeout_ms: int | None
    payload_limit: PayloadLimit | None = None
    """None: the limit of the client."""
    launchers: dict[str, Launcher] = msgspec.field(default_factory=dict[str, Launcher])
    """The launchers of external activities, by queue."""
    context: ContextFactory | None = None
    """Makes what `hf.context` returns in the bodies of this worker (A12)."""
    build: str = ""
    """The name of the build of the code; empty: the hash of the registered code."""
    retention: Retention | None = None
    """How long instances of workflows without a retention of their own are kept (R30)."""


class WorkerContext(msgspec.Struct, frozen=True):
    """Made once for each worker."""

    session: StoreSession
    registry: Registry
    lease: WorkerLease
    committer: Committer
    work: PollSignal
    """Wakes the claimer: set by any part that may have made something claimable."""
    payload_limit: PayloadLimit
    provided: ProvidedContext
    named_build: str
    """The name of the build that the worker was given; empty if none."""

    @property
    def build(self) -> str:
        """The build of the code, which is stored with the worker and with what it blocks (G12, R9)."""
        return self.named_build or self.registry.build

    def commit_then_poll(self, member: Member) -> None:
        """Commit `member`, retrying until the store accepts it, then wake the claimer."""

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, Failed):  # only the type is logged: the value of a completion may be a secret
                self.session.trouble.log(f"a {type(member).__name__} was not recorded", outcome.error)
            self.work.set()

        self.committer.commit_eventually(member, done)
