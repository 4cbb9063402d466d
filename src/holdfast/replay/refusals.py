"""The parts of an asyncio event loop that a workflow must not have, each answered with a readable error.

Sockets, pipes, processes, threads and signals give different answers on every run, so a replay could not
repeat them. Refusing by name, instead of leaving the standard ``NotImplementedError``, tells the author what
to do.
"""

import asyncio
from collections.abc import Callable
from typing import NoReturn

from holdfast.errors import NotInWorkflow


def _refuse(name: str, instead: str = "Do it in an activity and await that") -> Callable[..., NoReturn]:
    def refused(*_arguments: object, **_options: object) -> NoReturn:
        raise NotInWorkflow(f"the event loop of a workflow has no {name}(): a replay could not repeat it. {instead}.")

    refused.__name__ = refused.__qualname__ = name
    return refused


def _refuse_control(name: str) -> Callable[..., NoReturn]:
    return _refuse(name, "The worker drives this loop; leave it alone, or do the work in an activity")


class IsolatedLoop(asyncio.AbstractEventLoop):
    """An event loop of which every method that touches the outside, or the loop itself, refuses.

    It is also the mark by which `compat` knows that it is a workflow that calls.
    """

    def next_number(self) -> int:
        """Take the next creation number, for a future that is made elsewhere (see `compat`)."""
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
