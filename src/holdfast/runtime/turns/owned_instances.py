"""What a worker must not lose: ends of attempts that no turn takes along, instances it lets go of, and parked ones.

Each is stored however often that takes; its guard makes a second try harmless.
"""

import logging
from collections.abc import Callable

from holdfast.authoring.registry import Registry
from holdfast.core.leases import WorkerKey
from holdfast.runtime.committer import Committer
from holdfast.runtime.turns.live_instance import LiveInstance
from holdfast.storage.members.attempts import Completion, OpenNextAttempt
from holdfast.storage.members.instances import Block, Release
from holdfast.storage.members.outcomes import Applied, Failed, Outcome
from holdfast.storage.members.turns import InstanceEnd
from holdfast.storage.records import InstanceId, InstanceNumber, InstanceRecord

logger = logging.getLogger("holdfast")

Ended = Callable[[InstanceId, InstanceNumber, InstanceEnd | None], None]
"""Who is told that an instance ended, and how; None says that it was parked."""


class Keeper:
    """Stores on behalf of the owner of instances, under the key that its worker has at that moment."""

    def __init__(
        self,
        committer: Committer,
        key: Callable[[], WorkerKey],
        registry: Registry,
        *,
        ended: Ended,
        work_is_waiting: Callable[[], None],
    ) -> None:
        self._committer = committer
        self._key = key
        self._registry = registry
        self._ended = ended
        self._work_is_waiting = work_is_waiting

    def keep(self, member: Completion | OpenNextAttempt | Release) -> None:
        """Then there may be something to do."""

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, Failed):
                self._committer.trouble.log(
                    f"a {type(member).__name__} was not recorded", outcome.error
                )  # its value may be a secret
            self._work_is_waiting()

        self._committer.commit_eventually(member, done)

    def release(self, live: LiveInstance, owner: WorkerKey | None = None) -> None:
        """G2: the instance becomes claimable by others."""
        self.keep(Release(number=live.number, owner=owner or self._key(), fence=live.fence))

    def park(self, instance: LiveInstance | InstanceRecord, reason: str) -> None:
        """G12: the instance waits for somebody who can go on with it. Its history and messages stay."""
        number, owner, build = instance.number, self._key(), self._registry.build
        block = Block(number=number, owner=owner, fence=instance.fence, reason=reason, build=build)

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, Applied):  # else it was ended (A9), or another worker has claimed it
                extra = {
                    "holdfast_instance": instance.id,
                    "holdfast_workflow": instance.workflow,
                    "holdfast_execution": instance.execution,
                    "holdfast_worker": owner,
                }
                logger.error("instance %s is blocked: %s", instance.id, reason, extra=extra)
            self._ended(instance.id, number, None)

        self._committer.commit_eventually(block, done)
