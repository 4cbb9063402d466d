"""A handle of one update: its id, and its reply."""

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from holdfast.authoring.validation import Duration
from holdfast.storage.records import InstanceId, InstanceNumber

if TYPE_CHECKING:
    from holdfast.client.updates import UpdateClient

R_co = TypeVar("R_co", covariant=True)


class UpdateHandle(Generic[R_co]):
    """Names one update of one instance. Making a handle does not read the store; `result` does (G17).

    The handle of `Handle.start_update` and of ``start(..., update=...)`` stays with the instance that has the update.
    One of `Client.get_update` means the newest instance of the id.
    """

    __slots__ = ("_id", "_instance_id", "_number", "_returns", "_updates")

    def __init__(
        self,
        updates: "UpdateClient",
        instance_id: InstanceId,
        number: InstanceNumber | None,
        update_id: str,
        returns: Any = Any,
    ) -> None:
        self._updates = updates
        self._instance_id = instance_id
        self._number = number
        self._id = update_id
        self._returns = returns

    @property
    def id(self) -> str:
        """The id of the update."""
        return self._id

    @property
    def instance_id(self) -> str:
        """The id of the instance that the update was sent to."""
        return self._instance_id

    def __repr__(self) -> str:
        return f"<handle of update {self._id!r} of {self._instance_id!r}>"

    async def result(self, timeout: Duration | None = None) -> R_co:  # noqa: ASYNC109 - the name is part of the design
        """Wait for the result of the function, as `Handle.update` does, with the same errors.

        The reply is stored: every call, in any process, gets the same one. Raises `UpdateNotFound` if the instance has
        no update with this id, and `InstanceNotFound`. After a `TimeoutError` the update continues.
        """
        found = await self._updates.result(
            self._instance_id, self._number, self._id, returns=self._returns, within=timeout
        )
        return cast("R_co", found)
