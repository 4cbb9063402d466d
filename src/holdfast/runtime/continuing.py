"""The next execution of an instance, made in the turn that ends the one before it (G4)."""

import msgspec

from holdfast.core.events import ContinuedAsNew, Started, encode_event
from holdfast.replay.continuing import seed_after
from holdfast.runtime.live import LiveInstance
from holdfast.storage.contract import LargePayload, NextExecution
from holdfast.storage.large import offload


def next_execution(live: LiveInstance, asked: ContinuedAsNew, payloads: list[LargePayload]) -> NextExecution:
    """What the store needs to create it. `asked` carries its input in place."""
    encoded = bytes(asked.input.data)
    started = Started(
        time_ms=live.stamp_ms,
        workflow=live.workflow,
        version=live.run.version,
        seed=seed_after(live.run.seed, live.execution),
        input=asked.input,
        execution=live.execution + 1,
        parent=live.run.parent,
        depth=live.run.depth,
        kept={key: msgspec.Raw(value) for key, value in live.run.kept.items()} or None,
    )
    kept: list[LargePayload] = []
    stored = encode_event(offload(started, kept))
    payloads += [large for large in kept if large not in payloads]
    return NextExecution(input=encoded, started=stored)
