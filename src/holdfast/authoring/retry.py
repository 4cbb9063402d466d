"""``hf.Retry``: the policy by which attempts of an activity and executions of a workflow are retried."""

from dataclasses import dataclass

from holdfast.authoring.validation import (
    Duration,
    checked_bool,
    checked_duration_ms,
    checked_integer,
    checked_number,
    checked_sequence,
)
from holdfast.core.activity_options import RetryPolicy
from holdfast.core.children import NAME_LIMIT_BYTES
from holdfast.errors import InvalidOption
from holdfast.payloads.failures import qualified_name


@dataclass(frozen=True, slots=True)
class Retry:
    """`attempts` in all (None: for ever), with delays that grow from `initial` by `backoff` up to `maximum`.

    Errors of the types in `non_retryable`, or of types derived from them, are not retried. A type that cannot be
    imported here is given by its name, short or qualified: ``"Declined"`` or ``"shop.payments.Declined"``.
    """

    attempts: int | None = 5
    initial: Duration = 1.0
    backoff: float = 2.0
    maximum: Duration = 60.0
    jitter: bool = True
    non_retryable: tuple[type[BaseException] | str, ...] = ()

    def __post_init__(self) -> None:
        self.policy()

    def policy(self) -> RetryPolicy:
        """The policy of the core. Values out of range raise `InvalidOption`."""
        attempts = None if self.attempts is None else checked_integer(self.attempts, "Retry(attempts)", least=1)
        initial_ms = checked_duration_ms(self.initial, "Retry(initial)")
        maximum_ms = checked_duration_ms(self.maximum, "Retry(maximum)")
        if maximum_ms < initial_ms:
            raise InvalidOption(
                f"Retry(maximum) must be at least Retry(initial), and {maximum_ms / 1000:g} s is less than "
                f"{initial_ms / 1000:g} s"
            )
        return RetryPolicy(
            attempts=attempts,
            initial_ms=initial_ms,
            backoff=checked_number(self.backoff, "Retry(backoff)"),
            maximum_ms=maximum_ms,
            jitter=checked_bool(self.jitter, "Retry(jitter)"),
            non_retryable=frozenset(_name_of(error) for error in checked_sequence(self.non_retryable, "non_retryable")),
        )


def _name_of(error: object) -> str:
    if isinstance(error, str) and len(error) <= NAME_LIMIT_BYTES and all(map(str.isidentifier, error.split("."))):
        return error
    if isinstance(error, type) and issubclass(error, BaseException):
        return qualified_name(error)
    raise InvalidOption(
        f"Retry(non_retryable) takes exception types such as ValueError, or their names such as 'shop.Declined', "
        f"not {error!r}"
    )


def checked_retry(retry: object) -> Retry | None:
    """`retry`, if it is a policy or None; else an `InvalidOption`."""
    if retry is None or isinstance(retry, Retry):
        return retry
    raise InvalidOption(f"retry takes hf.Retry(...), such as hf.Retry(attempts=3), not {retry!r}")
