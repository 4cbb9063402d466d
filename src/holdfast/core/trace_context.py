"""W3C trace contexts as they are stored, and the ids of the spans of executions and attempts (M4, M5).

A stored context is one text: the `traceparent`, and after a space the `tracestate` if there is one. Ids of spans are
derived from what the store keeps, so that every process names the same span, before it is written and after a crash.
"""

import re
from hashlib import sha256
from typing import Final, NamedTuple

SAMPLED: Final = 1
"""The bit of the flags that says that the trace is recorded."""
MOST_STATE: Final = 512
"""A longer `tracestate` is not stored: W3C requires no more to be propagated."""
_FORMAT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-[^ ]*)?(?: (.*))?")
_TRACE_BYTES: Final = 16
_SPAN_BYTES: Final = 8


class TraceContext(NamedTuple):
    """A span that other spans name as their parent."""

    trace_id: int
    span_id: int
    flags: int = SAMPLED
    state: str = ""

    def encode(self) -> str:
        """The text that is stored."""
        parent = f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}"
        return f"{parent} {self.state}" if self.state and len(self.state) <= MOST_STATE else parent

    def child(self, span_id: int) -> "TraceContext":
        """Another span of the same trace."""
        return self._replace(span_id=span_id)


def parse_context(text: str) -> TraceContext | None:
    """A stored context; None if there is none, or if it is malformed."""
    found = _FORMAT.fullmatch(text)
    if found is None:
        return None
    trace, span, flags, state = found.groups()
    context = TraceContext(int(trace, 16), int(span, 16), int(flags, 16), state or "")
    return context if context.trace_id and context.span_id else None


def derived_trace_id(seed: int) -> int:
    """The trace of an execution whose start carries no context."""
    return _derived(_TRACE_BYTES, "trace", seed)


def execution_span_id(trace_id: int, seed: int, execution: int) -> int:
    """The span of an execution. No other execution has its seed, and the number of an instance is known too late: the
    first activities are committed together with the instance."""
    return _derived(_SPAN_BYTES, "run", trace_id, seed, execution)


def attempt_span_id(parent: int, activity: int, attempt: int, dimension: str = "") -> int:
    """The span of an attempt. `parent` is the span of its execution."""
    return _derived(_SPAN_BYTES, "attempt", parent, activity, attempt, dimension)


def event_span_id(parent: int, number: int) -> int:
    """The span of an event that the code of an execution raised."""
    return _derived(_SPAN_BYTES, "event", parent, number)


def _derived(size: int, *parts: object) -> int:
    digest = sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:size]) or 1  # W3C: an id of zeros is invalid
