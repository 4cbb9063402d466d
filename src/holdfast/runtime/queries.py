"""Answers to queries: from code that is live here, or by a replay of the committed history that nobody sees (G11).

Neither takes a turn, and neither changes anything: what a query shows is what was on disk when it was answered.
"""

import asyncio
from functools import partial
from typing import Final

import msgspec

from holdfast.core.answers import Answer
from holdfast.core.events import FROM_OUTSIDE, decode_events
from holdfast.core.lifecycle import InstanceState
from holdfast.errors import InstanceClosed, StoreError, WorkflowBlocked
from holdfast.replay.answers import refused, unknown
from holdfast.replay.asking import Asked, ask
from holdfast.replay.run import WorkflowRun
from holdfast.runtime.flow_runs import AnyRun
from holdfast.runtime.instances import InstanceOwner, workflow_logger
from holdfast.runtime.live import LiveInstance
from holdfast.runtime.runs import RunMaker
from holdfast.storage.contract import HistoryRow, InstanceNumber, InstanceRecord, Store
from holdfast.storage.large import references_in

LOOK_SECONDS: Final = 0.05
"""How soon it is noticed that an instance is not live here any more, while its turn was waited for."""


async def ask_live(instances: InstanceOwner, number: InstanceNumber, name: str, data: bytes) -> Answer | None:
    """Ask code that is live here, as soon as no turn of it is on its way to disk; None if there is none, or no more."""
    while (live := instances.live.get(number)) is not None:
        if not live.busy:
            answer = _logged(live.id, _ask(live.run, name, data))
            if live.run.is_spoiled:
                instances.let_go(live)
            return answer
        told: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        live.asked = [*(live.asked or ()), partial(_tell, live, name, data, told)]
        try:
            done, _ = await asyncio.wait({told}, timeout=LOOK_SECONDS)
            if done:
                return told.result()
        finally:
            told.cancel()  # whoever is not there any more, or asks anew, is not answered by this
    return None


async def ask_here(
    store: Store, runs: RunMaker, instances: InstanceOwner | None, *, number: InstanceNumber, name: str, data: bytes
) -> Answer | None:
    """Ask the code that is live here, or else that which is known here; None if the instance is not there any more."""
    if instances is not None:
        answer = await ask_live(instances, number, name, data)
        if answer is not None:
            return answer
    record = await store.read_instance(number)
    return None if record is None else await ask_history(store, runs, record, name, data)


def _tell(live: LiveInstance, name: str, data: bytes, told: "asyncio.Future[Answer]") -> None:
    if not told.done():
        told.set_result(_logged(live.id, _ask(live.run, name, data)))


async def ask_history(store: Store, runs: RunMaker, record: InstanceRecord, name: str, data: bytes) -> Answer:
    """Rebuild the run from its committed history, ask it, and let it go. What is BLOCKED shows its last good turn."""
    history = await store.read_history(record.number, record.execution)
    try:
        never_ran = _never_ran(history)
    except Exception as error:  # noqa: BLE001 - damaged, and whoever asked is told
        return _unreadable(record, error)
    if never_ran:
        return refused(InstanceClosed(f"{record.id!r} was ended before any of its code ran: nobody can be asked"))
    payloads = await store.read_payloads(record.number, references_in(row.events for row in history))
    try:
        flow = await runs.flows.fetch(store, record.workflow, history)
    except StoreError:
        raise
    except Exception as error:  # noqa: BLE001 - its version of the flow cannot run here, and whoever asked is told
        return _unreadable(record, error)
    if flow:
        return unknown(())  # it has no code that could answer
    run = runs.new_run(record.id, record.workflow, record.execution, payloads, flow)
    try:
        runs.replay(record.number, run, history)
    except Exception as error:  # noqa: BLE001 - this code cannot go on with that history, and whoever asked is told
        run.evict()
        return _unreadable(record, error)
    try:
        return _logged(record.id, _ask(run, name, data))
    finally:
        run.evict()


def _ask(run: AnyRun, name: str, data: bytes) -> Asked:
    """A flow has no code that could answer."""
    return ask(run, name, data) if isinstance(run, WorkflowRun) else Asked(unknown(()))


def _unreadable(record: InstanceRecord, error: Exception) -> Answer:
    if record.state is InstanceState.BLOCKED:
        return refused(WorkflowBlocked(f"{record.id} is blocked: {record.blocked}"))
    if isinstance(error, msgspec.MsgspecError):
        return refused(StoreError(f"the history of {record.id!r} is damaged: {error}; `holdfast verify` says more"))
    return refused(error)


def _never_ran(history: list[HistoryRow]) -> bool:
    """Whether the first turn was none, only the end from outside."""
    return not history or isinstance(decode_events(history[0].events)[-1], FROM_OUTSIDE)


def _logged(instance_id: str, asked: Asked) -> Answer:
    for line in asked.logs:
        workflow_logger.log(line.level, line.message, *line.arguments, extra={"instance": instance_id, **line.extra})
    return asked.answer
