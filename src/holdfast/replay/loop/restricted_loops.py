"""Event loops that refuse: no I/O for workflow code, and no change at all for read-only code.

Sockets, pipes, processes, threads and signals give different results in every run, so that a replay could not repeat
them. `IsolatedLoop` refuses each by its name, with an error that names the alternative.

Queries and the validators of updates are read-only. While they run, a `ReadOnlyLoop` takes the place of the workflow's
own loop and refuses every call that would change the workflow or wait.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from inspect import isawaitable, iscoroutine
from typing import Any, NoReturn, TypeVar

from holdfast.core.run import SliceRunner
from holdfast.errors import NotInWorkflow, NotReadOnly
from holdfast.replay.loop.loop_swap import run_swapped


def _refuse(name: str, instead: str = "Do it in an activity and await that") -> Callable[..., NoReturn]:
    def refused(*_arguments: object, **_options: object) -> NoReturn:
        raise NotInWorkflow(f"the event loop of a workflow has no {name}(): a replay could not repeat it. {instead}.")

    refused.__name__ = refused.__qualname__ = name
    return refused


def _refuse_control(name: str) -> Callable[..., NoReturn]:
    return _refuse(name, "The worker drives this loop; leave it alone, or do the work in an activity")


class IsolatedLoop(asyncio.AbstractEventLoop):
    """An event loop whose methods for I/O, and for control of the loop itself, raise `NotInWorkflow`.

    `asyncio_patches` recognises the caller as workflow code by this class.
    """

    def next_number(self) -> int:
        """Take the next creation number, for a future that is made elsewhere (see `asyncio_patches`)."""
        raise NotImplementedError

    add_reader: Callable[..., NoReturn] = _refuse("add_reader")  # type: ignore[assignment] # variadic
    remove_reader: Callable[..., NoReturn] = _refuse("remove_reader")
    add_writer: Callable[..., NoReturn] = _refuse("add_writer")  # type: ignore[assignment] # variadic
    remove_writer: Callable[..., NoReturn] = _refuse("remove_writer")
    add_signal_handler: Callable[..., NoReturn] = _refuse("add_signal_handler")  # type: ignore[assignment] # variadic
    remove_signal_handler: Callable[..., NoReturn] = _refuse("remove_signal_handler")
    connect_accepted_socket: Callable[..., NoReturn] = _refuse("connect_accepted_socket")
    connect_read_pipe: Callable[..., NoReturn] = _refuse("connect_read_pipe")
    connect_write_pipe: Callable[..., NoReturn] = _refuse("connect_write_pipe")
    create_connection: Callable[..., NoReturn] = _refuse("create_connection")
    create_datagram_endpoint: Callable[..., NoReturn] = _refuse("create_datagram_endpoint")
    create_server: Callable[..., NoReturn] = _refuse("create_server")
    create_unix_connection: Callable[..., NoReturn] = _refuse("create_unix_connection")
    create_unix_server: Callable[..., NoReturn] = _refuse("create_unix_server")
    getaddrinfo: Callable[..., NoReturn] = _refuse("getaddrinfo")
    getnameinfo: Callable[..., NoReturn] = _refuse("getnameinfo")
    run_in_executor: Callable[..., NoReturn] = _refuse("run_in_executor")  # type: ignore[assignment] # variadic
    sendfile: Callable[..., NoReturn] = _refuse("sendfile")
    sock_accept: Callable[..., NoReturn] = _refuse("sock_accept")
    sock_connect: Callable[..., NoReturn] = _refuse("sock_connect")
    sock_recv: Callable[..., NoReturn] = _refuse("sock_recv")
    sock_recv_into: Callable[..., NoReturn] = _refuse("sock_recv_into")
    sock_recvfrom: Callable[..., NoReturn] = _refuse("sock_recvfrom")
    sock_recvfrom_into: Callable[..., NoReturn] = _refuse("sock_recvfrom_into")
    sock_sendall: Callable[..., NoReturn] = _refuse("sock_sendall")
    sock_sendfile: Callable[..., NoReturn] = _refuse("sock_sendfile")
    sock_sendto: Callable[..., NoReturn] = _refuse("sock_sendto")
    start_tls: Callable[..., NoReturn] = _refuse("start_tls")
    subprocess_exec: Callable[..., NoReturn] = _refuse("subprocess_exec")
    subprocess_shell: Callable[..., NoReturn] = _refuse("subprocess_shell")

    close: Callable[..., NoReturn] = _refuse_control("close")
    default_exception_handler: Callable[..., NoReturn] = _refuse_control("default_exception_handler")
    run_forever: Callable[..., NoReturn] = _refuse_control("run_forever")
    run_until_complete: Callable[..., NoReturn] = _refuse_control("run_until_complete")
    set_debug: Callable[..., NoReturn] = _refuse_control("set_debug")
    set_default_executor: Callable[..., NoReturn] = _refuse_control("set_default_executor")
    set_exception_handler: Callable[..., NoReturn] = _refuse_control("set_exception_handler")
    set_task_factory: Callable[..., NoReturn] = _refuse_control("set_task_factory")
    shutdown_asyncgens: Callable[..., NoReturn] = _refuse_control("shutdown_asyncgens")
    shutdown_default_executor: Callable[..., NoReturn] = _refuse_control("shutdown_default_executor")
    stop: Callable[..., NoReturn] = _refuse_control("stop")


T = TypeVar("T")


class ReadOnlyLoop(IsolatedLoop):
    """The running loop of read-only code. `what` names that code in errors, and `host` is the host of the workflow."""

    def __init__(self, what: str, host: object, seconds: float) -> None:
        self._what = what
        self._seconds = seconds
        self.host = host

    def run(self, watch: SliceRunner, work: Callable[[], T]) -> T:
        """Call `work` with this loop as the running one. An awaitable result is refused."""
        value = run_swapped(self, watch, work)
        if isawaitable(value):
            if iscoroutine(value):
                value.close()
            self.refuse()
        return value

    def refuse(self) -> NoReturn:
        """Raise `NotReadOnly`."""
        raise NotReadOnly(
            f"{self._what} is read-only: it called a function that would change the workflow, or would have to wait. "
            "Let an update, an event or the workflow itself do that"
        )

    def hold_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Hold nothing: a generator that such code leaves behind needs no close, because it never ran."""

    def time(self) -> float:
        return self._seconds

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def _refused(self, *_arguments: object, **_options: object) -> NoReturn:
        self.refuse()

    call_soon: Callable[..., NoReturn] = _refused  # type: ignore[assignment] # variadic
    call_soon_threadsafe: Callable[..., NoReturn] = _refused  # type: ignore[assignment] # variadic
    call_later: Callable[..., NoReturn] = _refused  # type: ignore[assignment] # variadic
    call_at: Callable[..., NoReturn] = _refused  # type: ignore[assignment] # variadic
    create_future: Callable[..., NoReturn] = _refused
    next_number: Callable[..., NoReturn] = _refused
    get_task_factory: Callable[..., NoReturn] = _refused
    get_exception_handler: Callable[..., NoReturn] = _refused

    def create_task(self, coro: Any, **options: Any) -> NoReturn:
        del options
        coro.close()
        self.refuse()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        del context  # reported by a finaliser, not by this code
