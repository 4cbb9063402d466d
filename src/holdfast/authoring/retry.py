"""``hf.Retry``: how often and how patiently an activity is tried again."""

from dataclasses import dataclass

from holdfast.authoring.durations import Duration, milliseconds
from holdfast.authoring.options import number, several, switch, whole_number
from holdfast.core.retry import RetryPolicy
from holdfast.errors import InvalidOption
from holdfast.payloads.failures import qualified_name
from holdfast.payloads.limits import NAME_LIMIT_BYTES


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
        """The same in the core's terms. Numbers that make no sense are refused here."""
        attempts = None if self.attempts is None else whole_number(self.attempts, "Retry(attempts)", least=1)
        initial_ms = milliseconds(self.initial, "Retry(initial)")
        maximum_ms = milliseconds(self.maximum, "Retry(maximum)")
        if maximum_ms < initial_ms:
            raise InvalidOption(
                f"Retry(maximum) must be at least Retry(initial), and {maximum_ms / 1000:g} s is less than "
                f"{initial_ms / 1000:g} s"
            )
        return RetryPolicy(
            attempts=attempts,
            initial_ms=initial_ms,
            backoff=number(self.backoff, "Retry(backoff)"),
            maximum_ms=maximum_ms,
            jitter=switch(self.jitter, "Retry(jitter)"),
            non_retryable=frozenset(_name_of(error) for error in several(self.non_retryable, "non_retryable")),
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
