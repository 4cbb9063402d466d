"""Checks the offers of external attempts against the attempts (C4, A2, L7)."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from holdfast.audit.attempts import HELD, is_external, shown
from holdfast.audit.problems import Finding, Rule
from holdfast.core.ledger import read_ledger
from holdfast.core.lifecycle import ATTEMPT_FINAL, AttemptState
from holdfast.errors import LedgerError
from holdfast.storage.relational.raw_tables import RawAttempt, RawOffer

MOST_REMEMBERED: Final = 1_024
_sequences: Final = msgspec.json.Decoder(dict[str, int])


def check_offers(attempts: Sequence[RawAttempt], offers: Sequence[RawOffer], *, is_open: bool) -> Iterator[Finding]:
    """Checks the offers of one execution. `is_open`: the instance is open, so that no offer is pruned yet."""
    found: dict[tuple[int, str, int], list[RawOffer]] = {}
    for offer in offers:
        found.setdefault((offer.activity, offer.dimension, offer.attempt), []).append(offer)
    for attempt in attempts:
        made = found.pop((attempt.activity, attempt.dimension, attempt.attempt), [])
        if not is_external(attempt):
            if made:
                yield Rule.OFFERS_AGREE, f"{shown(attempt)} is not external, and was offered to executors"
        else:
            yield from _check_one(attempt, made, is_open=is_open)
    for activity, dimension, number in found:
        place = f" in dimension {dimension}" if dimension else ""
        yield Rule.OFFERS_AGREE, f"attempt {number} of activity {activity}{place} was offered, and does not exist"


def _check_one(attempt: RawAttempt, offers: Sequence[RawOffer], *, is_open: bool) -> Iterator[Finding]:
    """Checks the offers of one external attempt."""
    what = shown(attempt)
    current = [offer for offer in offers if offer.withdrawn_at_ms is None]
    if len(current) > 1:
        yield Rule.OFFERS_AGREE, f"{what} has {len(current)} current offers"
    if not offers and is_open:
        yield Rule.OFFERS_AGREE, f"{what} is external, and was never offered to executors"
    elif not current and attempt.state not in ATTEMPT_FINAL:
        yield Rule.OFFERS_AGREE, f"{what} is {attempt.state}, and has no current offer: no report can reach it"
    entries = [offer.entry for offer in offers]
    if len(set(entries)) < len(entries):
        yield Rule.OFFERS_AGREE, f"{what} was offered twice for one entry"
    for offer in offers:
        if offer.name != attempt.name:
            yield Rule.OFFERS_AGREE, f"{what} is called {attempt.name!r}, and was offered as {offer.name!r}"
        if offer.sequences is not None and not _are_sequences(offer.sequences):
            yield Rule.ROWS_READABLE, f"the sequences of offer {offer.entry} of {what} cannot be decoded"
    if len(current) == 1:
        yield from _check_current(attempt, current[0])


def _check_current(attempt: RawAttempt, offer: RawOffer) -> Iterator[Finding]:
    """The current offer is for the entry that the digits of an open attempt count."""
    what = shown(attempt)
    is_ready = attempt.state == AttemptState.READY
    if is_ready and offer.claim is not None:
        yield Rule.OFFERS_AGREE, f"{what} is READY, and its offer is claimed"
    try:
        entries = read_ledger(attempt.ledger).leg1_entries
    except LedgerError:
        return  # reported with the attempt
    expected = entries + is_ready
    if (is_ready or attempt.state in HELD) and offer.entry != expected:
        yield Rule.OFFERS_AGREE, f"{what} is {attempt.state} in entry {expected}, and its offer is for {offer.entry}"


@lru_cache(MOST_REMEMBERED)
def _are_sequences(text: str) -> bool:
    try:
        return all(number > 0 for number in _sequences.decode(text).values())
    except (msgspec.DecodeError, RecursionError):
        return False
