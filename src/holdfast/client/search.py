"""Lists and counts of instances by filters: pages, cursors and capped counts (F4-F9).

A cursor is the place of the last instance of a page, with the time of the first page, the order and a digest of the
filter, signed with a key of the store. The pages of one list share the time of the first, so that ``now - 1h`` is the
same moment in all of them.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable
from typing import Final

import msgspec

from holdfast.authoring.validation import checked_integer
from holdfast.client.views.instances import LONGEST_PAGE, Summary, summary
from holdfast.compose import search_store_of
from holdfast.core.filters import Filter, at, canonical, has_time_range, parse
from holdfast.errors import FilterTooBroad, InvalidCursor, InvalidOption
from holdfast.storage.contract import SearchStore, Store
from holdfast.storage.search import FoundInstance, OrderField, PageOrder, Position, SearchQuery

CAP: Final = 10_000
"""Matches that a count counts, unless it is exact."""
EXACT: Final = 2**62
FORMAT: Final = 1
SIGNATURE_BYTES: Final = 16
DIGEST_BYTES: Final = 12
LONGEST_CURSOR: Final = 500
DIRECTIONS: Final = {"asc": True, "desc": False}


class InstancePage(list[Summary]):
    """Summaries of instances. `cursor` is for the next page; None if this is the last one."""

    def __init__(self, summaries: Iterable[Summary], cursor: str | None) -> None:
        super().__init__(summaries)
        self.cursor = cursor


class Count(msgspec.Struct, frozen=True):
    """How many instances match a filter. `at_least` is the number itself if `exact` is true."""

    at_least: int
    exact: bool

    def __str__(self) -> str:
        return f"{self.at_least:,}" if self.exact else f"{self.at_least - 1:,}+"


class _Place(msgspec.Struct, frozen=True, array_like=True):
    """The content of a cursor."""

    format: int
    key: int
    number: int
    now_ms: int
    order: str
    is_ascending: bool
    digest: bytes


def parse_order(order: object) -> PageOrder:
    """The order of a list: ``created``, ``closed`` or ``duration``, newest or longest first, or with ``asc`` last."""
    words = order.lower().split() if isinstance(order, str) else []
    known = (
        words
        and words[0] in list(OrderField)
        and (len(words) == 1 or words[1:] in ([*DIRECTIONS][:1], [*DIRECTIONS][1:]))
    )
    if not known:
        shown = repr(order)[:LONGEST_CURSOR]
        raise InvalidOption(f"order is created, closed or duration, and may end with asc or desc; not {shown}")
    return PageOrder(field=OrderField(words[0]), is_ascending=DIRECTIONS[words[1]] if len(words) > 1 else False)


def parse_filter(text: str | None) -> Filter | None:
    return None if text is None else parse(text)


async def list_page(
    store: Store, found: Filter | None, *, order: PageOrder, limit: int, cursor: str | None
) -> tuple[list[FoundInstance], str | None]:
    """A page of a list, and the cursor of the next one."""
    checked_integer(limit, "limit", least=1, most=LONGEST_PAGE)
    searched = search_store_of(store)
    if order.field is not OrderField.CREATED and not has_time_range(found):
        raise FilterTooBroad(
            f"a list in the order of {order.field} needs a time range, such as `closed > now - 1d` in the filter"
        )
    key = await searched.read_secret("cursors")
    digest = _digest(found)
    now_ms = store.now_ms()
    after: Position | None = None
    if cursor is not None:
        place = _read_cursor(cursor, key, order, digest)
        now_ms = place.now_ms
        after = Position(key=place.key, number=place.number)
    query = SearchQuery(filter=_fixed(found, now_ms), order=order, after=after, limit=limit + 1)
    rows = await searched.search(query)
    page = rows[:limit]
    if len(rows) <= limit:
        return page, None
    last = page[-1].position
    place = _Place(FORMAT, last.key, last.number, now_ms, order.field.value, order.is_ascending, digest)
    return page, _write_cursor(place, key)


async def list_summaries(store: Store, text: str | None, *, order: str, limit: int, cursor: str | None) -> InstancePage:
    """See `Client.list`."""
    rows, following = await list_page(store, parse_filter(text), order=parse_order(order), limit=limit, cursor=cursor)
    return InstancePage((summary(row.instance, row.attributes) for row in rows), following)


async def count_matches(store: Store, found: Filter | None, *, exact: bool) -> Count:
    """See `Client.count`."""
    searched: SearchStore = search_store_of(store)
    count = await searched.count_found(_fixed(found, store.now_ms()), EXACT if exact else CAP + 1)
    return Count(at_least=count, exact=exact or count <= CAP)


def _fixed(found: Filter | None, now_ms: int) -> Filter | None:
    return None if found is None else at(found, now_ms)


# ---------------------------------------------------------------- cursors


def _digest(found: Filter | None) -> bytes:
    text = "" if found is None else canonical(found)
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()


def _signature(data: bytes, key: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")[:SIGNATURE_BYTES]


def _write_cursor(place: _Place, key: bytes) -> str:
    data = msgspec.msgpack.encode(place)
    return _text_of(_signature(data, key) + data)


def _text_of(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _read_cursor(cursor: object, key: bytes, order: PageOrder, digest: bytes) -> _Place:
    if not isinstance(cursor, str) or not 0 < len(cursor) <= LONGEST_CURSOR:
        raise InvalidCursor("the cursor is not one of this store: pass the .cursor of the page before")
    try:
        decoded = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    if _text_of(decoded) != cursor:  # base64 has several spellings of one value
        decoded = b""
    signature = decoded[:SIGNATURE_BYTES]
    data = decoded[SIGNATURE_BYTES:]
    if not hmac.compare_digest(signature, _signature(data, key)):
        raise InvalidCursor("the cursor was changed, or belongs to another store: pass the .cursor of the page before")
    place = msgspec.msgpack.decode(data, type=_Place)
    if place.format != FORMAT or place.digest != digest:
        raise InvalidCursor("the cursor belongs to a list with another filter: pass the filter of the page before")
    if (place.order, place.is_ascending) != (order.field.value, order.is_ascending):
        raise InvalidCursor("the cursor belongs to a list in another order: pass the order of the page before")
    return place
