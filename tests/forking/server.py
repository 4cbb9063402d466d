"""Forks the processes of tests from one that has imported all they need: ``python -m tests.forking.server SOCKET``.

A child shares imported code with the others and nothing else: this process opens no store and starts no thread, and it
forks before the child has done anything. It kills the children that are left and ends when its socket does, which is
when the test process has ended, in whatever way.
"""

import gc
import importlib
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

MOST_BYTES = 100_000
STREAMS = 3
WARM = (
    "holdfast.audit",
    "holdfast.cli",
    "holdfast.client.engine",
    "holdfast.flows.compiled_flow",
    "holdfast.flows.run",
    "holdfast.storage.postgres.store",
    "holdfast.storage.sqlite.store",
    "tests.crash.flow_apps",
)
"""What nearly every child would import otherwise. The module of a request is imported when it comes."""
UNWANTED = ("pytest", "hypothesis")


class Request(msgspec.Struct, frozen=True):
    """A process that a test wants: a function, as ``module:function``, and what it finds in `sys.argv` and outside."""

    main: str
    arguments: list[str]
    environment: dict[str, str]
    has_session: bool = False


class Begun(msgspec.Struct, frozen=True, tag=True):
    """It was forked. A descriptor for its signals comes with this."""

    pid: int


class Ended(msgspec.Struct, frozen=True, tag=True):
    """It has ended, with that code, which is less than zero for a signal."""

    code: int


encode = msgspec.msgpack.Encoder().encode


class Child(msgspec.Struct, frozen=True):
    """A process that was forked, and whoever wants to know how it ends."""

    pid: int
    asker: socket.socket

    def tell_end(self) -> None:
        _, status = os.waitpid(self.pid, 0)
        with self.asker, suppress(BrokenPipeError):
            self.asker.send(encode(Ended(os.waitstatus_to_exitcode(status))))


def serve(requests: socket.socket) -> Request | None:
    """Fork a child for each request until nobody can make one. In a child this returns the request that it is for."""
    children: dict[int, Child] = {}
    news = select.poll()
    news.register(requests, select.POLLIN)
    while True:
        for descriptor, _ in news.poll():
            if descriptor != requests.fileno():
                news.unregister(descriptor)
                children.pop(descriptor).tell_end()
                os.close(descriptor)
                continue
            message, sent, _, _ = socket.recv_fds(requests, MOST_BYTES, STREAMS + 1)
            if not message:
                end(children)
                return None
            request = msgspec.msgpack.decode(message, type=Request)
            prepare(request)
            pid = os.fork()
            if pid == 0:
                become(request, sent[:STREAMS])
                return request
            for stream in sent[:STREAMS]:
                os.close(stream)
            watch = os.pidfd_open(pid)
            children[watch] = Child(pid, socket.socket(fileno=sent[STREAMS]))
            news.register(watch, select.POLLIN)
            with suppress(BrokenPipeError):
                socket.send_fds(children[watch].asker, [encode(Begun(pid))], [watch])


def prepare(request: Request) -> None:
    """Import what it needs, here: the children after it need it as well. What fails fails again in the child."""
    with suppress(Exception):
        importlib.import_module(request.main.partition(":")[0])
    if len(list(Path("/proc/self/task").iterdir())) != 1:
        raise RuntimeError(f"importing {request.main} starts a thread: it cannot be forked")
    for name in UNWANTED:
        if name in sys.modules:
            raise RuntimeError(f"importing {request.main} imports {name}: a program must not")
    gc.freeze()  # so that a collection in a child does not copy all that it shares


def become(request: Request, streams: list[int]) -> None:
    """The child has its own streams and environment, and nothing else that is open."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(STREAMS, os.sysconf("SC_OPEN_MAX"))
    if request.has_session:
        os.setsid()
    os.environ.clear()
    os.environ.update(request.environment)
    sys.argv = [request.main, *request.arguments]


def end(children: dict[int, Child]) -> None:
    for watch, child in children.items():
        signal.pidfd_send_signal(watch, signal.SIGKILL)
        child.tell_end()


def main() -> None:
    """The child ends as any program does: what its function raises is shown, and its threads are waited for."""
    for name in WARM:
        importlib.import_module(name)
    request = serve(socket.socket(fileno=int(sys.argv[1])))
    if request is not None:
        module, _, function = request.main.partition(":")
        getattr(importlib.import_module(module), function)()


if __name__ == "__main__":
    main()
