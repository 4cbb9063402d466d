"""The program in a child process: runs one body after the other until its parent is gone.

Started as ``python -m holdfast.runtime.processes.child DESCRIPTOR PATHS``: the places where its parent finds modules.
"""

import ctypes
import importlib
import importlib.util
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import Any, Final

import msgspec

from holdfast.authoring.activity import Activity
from holdfast.authoring.activity_context import ActivityInfo, current_activity
from holdfast.payloads.encoding import encode
from holdfast.payloads.failures import failure_of, qualified_name
from holdfast.runtime.processes.messages import LENGTH_BYTES, Beat, Raised, Result, Task, decode_task, framed

DIE_WITH_PARENT: Final = 1
"""PR_SET_PDEATHSIG of Linux; elsewhere the closed socket has to do."""
MAIN_MODULE: Final = "__mp_main__"
"""The name under which the main program is imported, so that its ``if __name__ == "__main__"`` does not run."""


class ChildContext:
    """What `hf.heartbeat` and its like talk to, in the child."""

    def __init__(self, task: Task, line: socket.socket) -> None:
        self._line = line
        self.info = ActivityInfo(*msgspec.json.decode(task.info))
        self.idempotency_key = task.idempotency_key

    def heartbeat(self, details: Any) -> None:
        self._line.sendall(framed(Beat(msgspec.Raw(encode(details, what="the details of a heartbeat")))))


def main(descriptor: int) -> None:
    """Serve the parent until it closes its end."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _go_on)
    line = socket.socket(fileno=descriptor)
    while (task := _read(line)) is not None:
        line.sendall(framed(_run(task, line)))


def _go_on(number: int, frame: object) -> None:
    """Whoever stops a service often tells all of its processes. The worker gives its bodies their time (W10)."""
    del number, frame


def _read(line: socket.socket) -> Task | None:
    header = _exactly(line, LENGTH_BYTES)
    if header is None:
        return None
    body = _exactly(line, int.from_bytes(header, "big"))
    return None if body is None else decode_task(body)


def _exactly(line: socket.socket, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        piece = line.recv(count - len(data))
        if not piece:
            return None
        data += piece
    return bytes(data)


def _run(task: Task, line: socket.socket) -> Result | Raised:
    token = current_activity.set(ChildContext(task, line))
    retryable: bool | None = None
    try:
        activity = _find(task)
        args, kwargs = activity.signature.decode_arguments(bytes(task.input))
        value = activity.fn(*args, **kwargs)
        retryable = False  # a result that cannot be stored: the next attempt would return the same
        return Result(msgspec.Raw(activity.signature.encode_result(value)))
    except BaseException as error:  # noqa: BLE001 - sys.exit ends the attempt, not this process
        types = tuple(qualified_name(cls) for cls in type(error).__mro__)
        failure = failure_of(error, retryable=retryable)
        return Raised(msgspec.Raw(msgspec.json.encode(failure)), types)
    finally:
        current_activity.reset(token)


def _find(task: Task) -> Activity[..., Any]:
    """The activity, from the module that the parent's registry named."""
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
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    paths: list[str] = msgspec.json.decode(sys.argv[2])
    sys.path[:] = dict.fromkeys(path or os.getcwd() for path in [*paths, ""])  # noqa: PTH109 - it may be gone
    main(int(sys.argv[1]))
