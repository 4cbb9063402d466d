"""The large payloads of one instance: each is there, and is what its reference is the hash of.

They are read one at a time, when something names them, so that an audit never holds more than one.
"""

from collections.abc import Callable, Iterable

import msgspec

from holdfast.audit.problems import Finding, Rule
from holdfast.core.history import HistoryEvent, Payload, payloads_of
from holdfast.storage.large_payloads import is_hash_of, read_stored, reference_of


class Payloads:
    """What was found out about the payloads that an instance names."""

    __slots__ = ("_number", "_read", "_trouble")

    def __init__(self, number: int, read: Callable[[int, str], bytes | None]) -> None:
        self._number = number
        self._read = read
        self._trouble: dict[str, str] = {}
        """By reference, why a payload is of no use; empty if it is sound."""

    def check(self, payload: Payload, what: str) -> list[Finding]:
        """One payload: nothing to check if it stands in place."""
        reference = payload.reference
        if not reference:
            return []
        if reference not in self._trouble:
            data = self._read(self._number, reference)
            if data is None:
                self._trouble[reference] = f" names the payload {reference[:12]}, which is not there"
            elif not is_hash_of(reference, data):
                self._trouble[reference] = f": the payload {reference[:12]} is not what was stored"
            else:
                self._trouble[reference] = ""
        trouble = self._trouble[reference]
        return [(Rule.PAYLOADS_THERE, f"{what}{trouble}")] if trouble else []

    def check_events(self, events: Iterable[HistoryEvent]) -> list[Finding]:
        """Every payload of a history."""
        findings: list[Finding] = []
        for at, event in enumerate(events):
            for payload in payloads_of(event):
                if payload.reference:
                    findings += self.check(payload, f"event {at}")
        return findings

    def data(self, payload: Payload) -> bytes | None:
        """The data itself; None if it is gone."""
        if not payload.reference:
            return bytes(payload.data)
        data = self._read(self._number, payload.reference)
        return None if data is None else read_stored(payload.reference, data)

    def are_same(self, one: Payload, other: Payload) -> bool:
        """Whether both hold the same data. References are hashes of it."""
        if one.reference and other.reference:
            return one.reference == other.reference
        return self.data(one) == self.data(other)


def input_payload(stored: bytes) -> Payload:
    """The column of an input as an event would carry it."""
    reference = reference_of(stored)
    return Payload(reference=reference) if reference else Payload(msgspec.Raw(stored))
