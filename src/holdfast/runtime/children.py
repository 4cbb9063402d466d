"""Children, from what the code did in a turn to what is committed with it (G11)."""

from collections.abc import Iterable

import msgspec

from holdfast.core.events import Payload, Started, encode_event
from holdfast.payloads.canonical import input_hash
from holdfast.replay.children import ScheduledChild
from holdfast.runtime.live import LiveInstance
from holdfast.storage.contract import InstanceId, LargePayload, NewChild
from holdfast.storage.large import offload


def new_children(live: LiveInstance, scheduled: Iterable[ScheduledChild]) -> tuple[NewChild, ...]:
    """The instances that a turn creates. However often it is tried, they are the same."""
    return tuple(_new_child(live, child) for child in scheduled)


def _new_child(live: LiveInstance, scheduled: ScheduledChild) -> NewChild:
    call, ties = scheduled.call, scheduled.ties
    payloads: list[LargePayload] = []
    started = Started(
        time_ms=live.stamp_ms,
        workflow=call.name,
        version=call.version,
        seed=scheduled.seed,
        input=Payload(msgspec.Raw(call.encoded)),
        parent=live.id,
        depth=scheduled.depth,
    )
    return NewChild(
        child=scheduled.child,
        id=InstanceId(scheduled.id),
        workflow=call.name,
        version=call.version,
        input=call.encoded,
        input_hash=input_hash(call.encoded),
        started=encode_event(offload(started, payloads)),
        parent_close=ties.parent_close,
        named=bool(ties.id),
        payloads=tuple(payloads),
        deadline=call.deadline,
    )
