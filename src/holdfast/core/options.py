"""How an activity is to be run: recorded with every attempt, so that any worker decides alike (A5, A10, G13)."""

from typing import Final

import msgspec
from msgspec.structs import replace

from holdfast.core.ledger import DEFAULT_LEG1_LIMIT
from holdfast.core.retry import DEFAULT_MAX_LOSSES, RetryPolicy

DEFAULT_QUEUE: Final = "default"


class StreamOptions(msgspec.Struct, frozen=True):
    """Of an activity that yields (L15). `delivered`: how many values the attempts before this one delivered."""

    resumable: bool = False
    delivered: int = 0


class ActivityOptions(msgspec.Struct, frozen=True):
    """Everything about an activity that matters after it was scheduled."""

    queue: str = DEFAULT_QUEUE
    retry: RetryPolicy = msgspec.field(default_factory=RetryPolicy)
    schedule_to_start_ms: int | None = None
    start_to_close_ms: int | None = None
    schedule_to_close_ms: int | None = None
    heartbeat_ms: int | None = None
    rerun_after_loss: bool = True
    max_losses: int = DEFAULT_MAX_LOSSES
    max_claims: int = DEFAULT_LEG1_LIMIT
    stream: StreamOptions | None = None

    def expires_at_ready_ms(self, *, scheduled_at_ms: int, available_at_ms: int) -> int | None:
        """A5: until when an attempt may wait in its queue. A retry's own delay does not count as waiting."""
        return _nearest(
            _after(available_at_ms, self.schedule_to_start_ms), _after(scheduled_at_ms, self.schedule_to_close_ms)
        )

    def expires_at_running_ms(self, *, scheduled_at_ms: int, started_at_ms: int, heard_at_ms: int) -> int | None:
        """A5: until when a body may run, given when it was last heard of."""
        if self.start_to_close_ms is None and self.schedule_to_close_ms is None and self.heartbeat_ms is None:
            return None  # the most frequent case
        return _nearest(
            _after(started_at_ms, self.start_to_close_ms),
            _after(scheduled_at_ms, self.schedule_to_close_ms),
            _after(heard_at_ms, self.heartbeat_ms),
        )


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(ActivityOptions)


def encode_options(options: ActivityOptions) -> bytes:
    """The options as they are stored with an attempt."""
    return _encoder.encode(options)


def decode_options(data: bytes) -> ActivityOptions:
    """The options of a stored attempt."""
    return _decoder.decode(data)


def options_of_next(data: bytes, entered: int) -> bytes:
    """The options of the attempt after one that delivered `entered` values: their numbers go on (L15)."""
    options = decode_options(data)
    if options.stream is None or not entered:
        return data
    return encode_options(
        replace(options, stream=replace(options.stream, delivered=options.stream.delivered + entered))
    )


def _after(start_ms: int, duration_ms: int | None) -> int | None:
    return None if duration_ms is None else start_ms + duration_ms


def _nearest(*deadlines_ms: int | None) -> int | None:
    return min((deadline for deadline in deadlines_ms if deadline is not None), default=None)
