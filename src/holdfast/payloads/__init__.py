"""Payloads: what workflows and activities take and return, as typed JSON. Never pickle.

`encoding` turns values into JSON by their annotations, `signature` does so for calls, `failures` for
exceptions. `canonical` hashes inputs, `scan` checks JSON from outside, `limits` has the bounds.
"""

from holdfast.payloads.canonical import HASH_BYTES, canonical_form, input_hash
from holdfast.payloads.encoding import PayloadType, decode, encode, payload_type
from holdfast.payloads.failures import (
    Failure,
    Resolver,
    failure_of,
    qualified_name,
    resolve_builtin,
    to_exception,
)
from holdfast.payloads.limits import INLINE_LIMIT_BYTES, MAX_DEPTH, PAYLOAD_LIMIT_BYTES, PayloadLimit, is_inline
from holdfast.payloads.scan import check_untrusted
from holdfast.payloads.signature import Arguments, Signature

__all__ = [
    "HASH_BYTES",
    "INLINE_LIMIT_BYTES",
    "MAX_DEPTH",
    "PAYLOAD_LIMIT_BYTES",
    "Arguments",
    "Failure",
    "PayloadLimit",
    "PayloadType",
    "Resolver",
    "Signature",
    "canonical_form",
    "check_untrusted",
    "decode",
    "encode",
    "failure_of",
    "input_hash",
    "is_inline",
    "payload_type",
    "qualified_name",
    "resolve_builtin",
    "to_exception",
]
