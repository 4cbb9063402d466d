"""BLOCKED instances in groups of one cause (R17)."""

from collections import Counter
from typing import Final, NamedTuple

from holdfast.client.views.reasons import reason_key, remedy
from holdfast.storage.contract import CheckableStore
from holdfast.storage.records import BlockedInstance

MOST_READ: Final = 10_000
PAGE: Final = 500


class BlockedGroup(NamedTuple):
    """Instances of one workflow that are blocked for one reason."""

    workflow: str
    instances: int
    example: BlockedInstance
    """The oldest of them."""
    builds: tuple[str, ...]
    """The builds that blocked them, the most frequent first."""
    remedy: str


class BlockedReport(NamedTuple):
    """All groups, the largest first. `is_whole` is False if there are more instances than `MOST_READ`."""

    groups: list[BlockedGroup]
    instances: int
    is_whole: bool


class _Gathering:
    """A group that grows."""

    def __init__(self, first: BlockedInstance) -> None:
        self.example = first
        self.count = 0
        self.builds: Counter[str] = Counter()

    def add(self, instance: BlockedInstance) -> None:
        self.count += 1
        self.builds.update(instance.builds)
        if instance.created_at_ms < self.example.created_at_ms:
            self.example = instance


async def read_blocked(store: CheckableStore, workflow: str | None = None, most: int = MOST_READ) -> BlockedReport:
    """The first `most` BLOCKED instances, of one workflow if it is given, by their reasons."""
    groups: dict[tuple[str, str], _Gathering] = {}
    after = -1
    count = 0
    is_whole = False
    while count < most and not is_whole:
        page = await store.blocked_instances(after=after, limit=min(PAGE, most - count))
        is_whole = len(page) < min(PAGE, most - count)
        count += len(page)
        for instance in page:
            after = instance.number
            if workflow in (None, instance.workflow):
                key = (instance.workflow, reason_key(instance.reason, instance.id))
                groups.setdefault(key, _Gathering(instance)).add(instance)
    if not is_whole:
        is_whole = not await store.blocked_instances(after=after, limit=1)
    found = [
        BlockedGroup(
            name,
            group.count,
            group.example,
            tuple(build for build, _ in group.builds.most_common()),
            remedy(group.example.reason),
        )
        for (name, _), group in groups.items()
    ]
    found.sort(key=lambda group: (-group.instances, group.workflow, group.example.number))
    return BlockedReport(found, sum(group.instances for group in found), is_whole)
