"""What every event of a history is, and the data that it carries."""

import msgspec


class HistoryEventBase(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="event", kw_only=True, gc=False):
    """Anything in the history."""


class Payload(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Encoded data: in place, or, when it is large, by reference."""

    data: msgspec.Raw = msgspec.Raw(b"null")
    reference: str = ""
