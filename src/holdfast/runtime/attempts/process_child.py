"""The child program for bodies in processes (``process=True``), and its protocol. `executors` is the worker's side.

Started as ``python -m holdfast.runtime.attempts.process_child DESCRIPTOR PATHS``, where PATHS is the parent's
`sys.path`. It runs one body after the other until the parent closes the socket. A body in a process can be killed, and
dies with the worker.

Messages are JSON with a length in front, over a socket pair. The worker sends a `BodyTask`. The child prepares it (an
import may take long), sends `Ready`, and calls the body when the worker replies `Begin`. `Cancel` may come at any
moment, also after the body has ended. The child imports the module that defines the activity; nothing is pickled.
"""

import asyncio
import importlib
import importlib.util
import os
import select
import signal
import socket
import sys
import threading
from contextlib import suppress
from typing import Any, Final

import msgspec

from holdfast.authoring.activity import Activity, ActivityInfo, AttemptIdentity, Cancelled, current_activity
from holdfast.authoring.log import records
from holdfast.errors import UsageError
from holdfast.payloads.encoding import encode
from holdfast.payloads.failures import failure_of, qualified_name
from holdfast.payloads.limits import MEBIBYTE, MOST_PAYLOAD_LIMIT_BYTES
from holdfast.runtime.importing import StartedByImport, importing
from holdfast.runtime.platform import SystemClockAndIds

LENGTH_BYTES: Final = 4
LONGEST_MESSAGE: Final = MOST_PAYLOAD_LIMIT_BYTES + MEBIBYTE


class BodyTask(msgspec.Struct, frozen=True, tag="task"):
    """Run this body."""

    module: str
    path: str
    """The file of the main program if it defines the activity, else empty."""
    name: str
    input: msgspec.Raw
    info: msgspec.Raw
    idempotency_key: str


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """W7: the body may begin, or continue after a heartbeat, before `until_ms` by the clock that all processes of a
    machine share. The reply to `Ready` and to every `BodyHeartbeat`.
    """

    until_ms: int


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """The body should stop."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The body can begin."""


class BodyHeartbeat(msgspec.Struct, frozen=True, tag="beat"):
    """A heartbeat of the body."""

    details: msgspec.Raw = msgspec.Raw(b"null")


class BodyResult(msgspec.Struct, frozen=True, tag="result"):
    """The body returned; `data` is its encoded result."""

    data: msgspec.Raw


class BodyError(msgspec.Struct, frozen=True, tag="raised"):
    """The body raised: the failure, and the names of its type and base types."""

    failure: msgspec.Raw
    types: tuple[str, ...]
    is_cancelled: bool = False
    """Whether it raised `asyncio.CancelledError` or `hf.Cancelled`, which derives from it."""


ToChild = BodyTask | Begin | Cancel
FromChild = Ready | BodyHeartbeat | BodyResult | BodyError

_encoder: Final = msgspec.json.Encoder()
_to_child: Final[msgspec.json.Decoder[ToChild]] = msgspec.json.Decoder(ToChild)
_from_child: Final[msgspec.json.Decoder[FromChild]] = msgspec.json.Decoder(FromChild)


def framed(message: ToChild | FromChild) -> bytes:
    """A message with its length in front."""
    data = _encoder.encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def decode_to_child(data: bytes) -> ToChild:
    """Decode a message of the worker."""
    message: ToChild = _to_child.decode(data)
    return message


def decode_from_child(data: bytes) -> FromChild:
    """Decode a message of a child."""
    message: FromChild = _from_child.decode(data)
    return message


DIE_WITH_PARENT: Final = 1
"""PR_SET_PDEATHSIG of Linux. On other systems the child ends when the socket closes."""
MAIN_MODULE: Final = "__mp_main__"
"""The name under which the main program is imported, so that its ``if __name__ == "__main__"`` does not run."""


class ChildContext:
    """The activity context in the child. Any thread of the body may use it."""

    def __init__(self, task: BodyTask, line: socket.socket) -> None:
        self._line = line
        self._is_cancelled = False
        self._until_ms = 0
        self._one_at_a_time = threading.Lock()
        self._info = msgspec.json.decode(task.info, type=ActivityInfo)
        self.idempotency_key = task.idempotency_key

    def begin(self) -> None:
        """W7: request the permission to begin. A worker whose lease is over kills this process instead."""
        elapsed_ms = SystemClockAndIds().elapsed_ms
        while True:
            self._line.sendall(framed(Ready()))
            answer = _read(self._line)
            if not isinstance(answer, Begin):
                self._is_cancelled = True
                raise self._cancelled()
            if elapsed_ms() < answer.until_ms:
                self._until_ms = answer.until_ms
                return

    @property
    def identity(self) -> AttemptIdentity:
        info = self._info
        return AttemptIdentity(
            info.instance_id, info.workflow, info.execution, info.activity, info.attempt, info.worker or None
        )

    @property
    def worker_context(self) -> Any:
        raise UsageError(
            f"hf.context: {self._info.activity} has process=True, and the context of a worker stays in its process; "
            "make what the body needs in the body"
        )

    @property
    def info(self) -> ActivityInfo:
        return self._info._replace(is_cancelled=self._has_to_stop())

    def heartbeat(self, details: Any) -> None:
        beat = framed(BodyHeartbeat(msgspec.Raw(encode(details, what="the details of a heartbeat"))))
        if self._has_to_stop():
            raise self._cancelled()
        with self._one_at_a_time:
            self._line.sendall(beat)
            if self._is_lease_over():
                self._take_message()  # waits: the worker may have renewed its lease, or its event loop is blocked
        if self._is_cancelled or self._is_lease_over():
            raise self._cancelled()

    def _is_lease_over(self) -> bool:
        """W7: whether the lease is over, by the last reply of the worker."""
        return SystemClockAndIds().elapsed_ms() >= self._until_ms

    def _has_to_stop(self) -> bool:
        with self._one_at_a_time:
            while not self._is_cancelled and _has_message(self._line):
                self._take_message()
        return self._is_cancelled

    def _take_message(self) -> None:
        message = _read(self._line)
        if isinstance(message, Begin):
            self._until_ms = message.until_ms
        else:
            self._is_cancelled = True  # `Cancel`, or the parent has closed the socket

    def _cancelled(self) -> Cancelled:
        info = self._info
        return Cancelled(f"attempt {info.attempt} of {info.activity} of instance {info.instance_id} was cancelled")


def main(descriptor: int) -> None:
    """Run bodies until the parent closes the socket."""
    import ctypes  # noqa: PLC0415 - slow to import; the worker imports this module too and does not need it

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _ignore_signal)
    records.install()
    line = socket.socket(fileno=descriptor)
    while (message := _read(line)) is not None:
        if isinstance(message, BodyTask):
            line.sendall(framed(_run(message, line)))
        # other messages are for a body that has ended meanwhile


def _ignore_signal(number: int, frame: object) -> None:
    """Service managers often signal all processes of a service. The worker lets its bodies end (W10)."""
    del number, frame


def _read(line: socket.socket) -> ToChild | None:
    header = _exactly(line, LENGTH_BYTES)
    if header is None:
        return None
    body = _exactly(line, int.from_bytes(header, "big"))
    return None if body is None else decode_to_child(body)


def _has_message(line: socket.socket) -> bool:
    poll = select.poll()
    poll.register(line, select.POLLIN)
    return bool(poll.poll(0))


def _exactly(line: socket.socket, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        piece = line.recv(count - len(data))
        if not piece:
            return None
        data += piece
    return bytes(data)


def _run(task: BodyTask, line: socket.socket) -> BodyResult | BodyError:
    context = ChildContext(task, line)
    token = current_activity.set(context)
    retryable: bool | None = False if task.path else None  # a main program that cannot be imported fails every time
    try:
        activity = _find(task)
        retryable = None
        args, kwargs = activity.signature.decode_arguments(bytes(task.input))
        context.begin()
        value = activity.fn(*args, **kwargs)
        retryable = False  # a result that cannot be stored: the next attempt would return the same
        return BodyResult(msgspec.Raw(activity.signature.encode_result(value)))
    except BaseException as error:  # noqa: BLE001 - sys.exit ends the attempt, not this process
        types = tuple(qualified_name(cls) for cls in type(error).__mro__)
        failure = msgspec.Raw(msgspec.json.encode(failure_of(error, retryable=retryable)))
        return BodyError(failure, types, is_cancelled=isinstance(error, asyncio.CancelledError))
    finally:
        current_activity.reset(token)


def _find(task: BodyTask) -> Activity[..., Any]:
    """The activity, from the module that the worker named."""
    module = _main_program(task.path) if task.path else importlib.import_module(task.module)
    for value in vars(module).values():
        if isinstance(value, Activity) and value.name == task.name:
            return value  # pyright: ignore[reportUnknownVariableType]  # its parameters do not matter here
    raise LookupError(f"{task.module} has no activity {task.name!r} at its top level")


def _main_program(path: str) -> Any:
    loaded = sys.modules.get(MAIN_MODULE)
    if loaded is not None:
        return loaded
    spec = importlib.util.spec_from_file_location(MAIN_MODULE, path)
    if spec is None or spec.loader is None:
        raise LookupError(f"the main program {path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MAIN_MODULE] = module
    try:
        with importing():
            spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[MAIN_MODULE]
        if isinstance(error, StartedByImport):
            raise UsageError(f"{path} cannot be imported by the process of an activity: {error}") from error
        raise
    return module


if __name__ == "__main__":
    paths: list[str] = msgspec.json.decode(sys.argv[2])
    sys.path[:] = dict.fromkeys(path or os.getcwd() for path in [*paths, ""])  # noqa: PTH109 - it may be gone
    main(int(sys.argv[1]))
