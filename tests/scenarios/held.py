"""A store of the kind that the scenario runs on, whose commits the scenario holds up or accompanies."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast import compose
from holdfast.runtime.platform import Platform
from holdfast.storage.contract import OpenableStore
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import Outcome
from holdfast.storage.members.turns import Turn
from holdfast.storage.records import CommitId
from holdfast.storage.wakeups import Notify, ignore_wakeups


def store_at(path: Path) -> Any:
    """A store that is not open yet, for an engine or a client. Its methods may be replaced."""
    store: OpenableStore = compose.open_store(path, "full", Platform())
    return store


class HeldTurns:
    """Commits with a turn wait from now on until `go_on` is set."""

    def __init__(self, store: OpenableStore) -> None:
        self.is_stuck, self.go_on = asyncio.Event(), asyncio.Event()
        self._commit = store.commit
        vars(store)["commit"] = self._hold

    async def _hold(
        self, commit_id: CommitId, members: Sequence[Member], notify: Notify = ignore_wakeups
    ) -> list[Outcome]:
        if any(isinstance(member, Turn) for member in members):
            self.is_stuck.set()
            await self.go_on.wait()
        return await self._commit(commit_id, members, notify)
