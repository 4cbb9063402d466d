"""Checks the large payloads of one instance: each is there, and its reference is its hash.

A payload is read when a row names it, so that an audit holds one payload at a time.
"""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from holdfast.audit.problems import Finding, Rule
from holdfast.core.history import HistoryEvent, Payload, payloads_of
from holdfast.storage.large_payloads import is_hash_of, read_stored, reference_of


class Payloads:
    """The payloads that the rows of an instance name, each checked once."""

    __slots__ = ("_number", "_read", "_trouble")

    def __init__(self, number: int, read: Callable[[int, str], bytes | None]) -> None:
        self._number = number
        self._read = read
        self._trouble: dict[str, str] = {}
        """The problem of each payload by reference; empty for a sound one."""

    def check(self, payload: Payload, what: str) -> Iterator[Finding]:
        """Checks a payload that is stored apart; `what` names its row in the finding."""
        reference = payload.reference
        if not reference:
            return
        if reference not in self._trouble:
            data = self._read(self._number, reference)
            if data is None:
                self._trouble[reference] = f" names the payload {reference[:12]}, which is not there"
            elif not is_hash_of(reference, data):
                self._trouble[reference] = f": the payload {reference[:12]} is not what was stored"
            else:
                self._trouble[reference] = ""
        if trouble := self._trouble[reference]:
            yield Rule.PAYLOADS_THERE, f"{what}{trouble}"

    def check_events(self, events: Iterable[HistoryEvent]) -> Iterator[Finding]:
        """Checks the payloads of a history."""
        for at, event in enumerate(events):
            for payload in payloads_of(event):
                yield from self.check(payload, f"event {at}")

    def data(self, payload: Payload) -> bytes | None:
        """The JSON of a payload; None if it is missing."""
        if not payload.reference:
            return bytes(payload.data)
        data = self._read(self._number, payload.reference)
        return None if data is None else read_stored(payload.reference, data)

    def are_same(self, one: Payload, other: Payload) -> bool:
        """Whether two payloads hold the same JSON. References, which are hashes, are compared without reading."""
        if one.reference and other.reference:
            return one.reference == other.reference
        return self.data(one) == self.data(other)


def input_payload(stored: bytes) -> Payload:
    """The payload in the column `input`."""
    reference = reference_of(stored)
    return Payload(reference=reference) if reference else Payload(msgspec.Raw(stored))
