"""A TCP proxy that harms what passes: stalls a direction, cuts connections, loses requests and answers.

What it did is counted, because a run in which a fault never happened proves nothing.
"""

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Self

CHUNK_BYTES = 65_536
AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER for a close that sends a reset."""
COMMIT = b"COMMIT\0"
"""The statement as it is sent. The end of its text tells it from a BEGIN ... READ COMMITTED."""


CALL = b".commit_group_"
"""The call of the group function, which is a whole transaction."""


class Direction(Enum):
    """Which way bytes go."""

    TO_SERVER = "to the server"
    TO_CLIENT = "to the client"


class Fate(Enum):
    """What happens to a piece of it."""

    ALLOW = "passes"
    LOSE_AND_CUT = "is lost, and the connection with it"
    ALLOW_BUT_LOSE_ANSWER = "passes; the answer is lost, and the connection with it"


Rule = Callable[[bytes], Fate]
"""Decides what happens to a piece on its way to the server."""


def always_allow(_: bytes) -> Fate:
    """No harm."""
    return Fate.ALLOW


class _Link:
    """One connection through the proxy."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.ends = {Direction.TO_SERVER: (client, server), Direction.TO_CLIENT: (server, client)}
        self.loses_answer = False
        self._lock = threading.Lock()
        self._is_cut = False

    def cut(self) -> None:
        """End both sides with a reset, once. Whoever waits for bytes of either is woken."""
        with self._lock:
            if self._is_cut:
                return
            self._is_cut = True
        for end in self.ends[Direction.TO_SERVER]:
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Proxy:
    """Between clients and a server on 127.0.0.1. Used as a context manager."""

    def __init__(self, server_port: int) -> None:
        self._server = ("127.0.0.1", server_port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.rule: Rule = always_allow
        self.accepted = 0
        self.harmed = 0
        """How many connections a rule has ended."""
        self._links: set[_Link] = set()
        self._stalled: set[Direction] = set()
        self._holding: tuple[bytes, int] | None = None
        self._held = threading.Event()
        self._let_go = threading.Event()
        self._refuses = False
        self._is_closed = False
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.resume()
        self.cut()
        self._thread.join()

    def stall(self, *directions: Direction) -> None:
        """Bytes wait from now on, in both directions or in those that are named."""
        with self._change:
            self._stalled.update(directions or Direction)

    def resume(self) -> None:
        """Bytes go on."""
        with self._change:
            self._stalled.clear()
            self._change.notify_all()

    def hold_back(self, text: bytes, size: int) -> None:
        """Of the next piece with this text only `size` bytes pass, one fewer than all at most, until `let_go`."""
        self._holding = (text, size)

    def wait_until_held(self) -> None:
        """Wait until the first bytes of that piece have passed."""
        self._held.wait()

    def let_go(self) -> None:
        """The rest of it passes."""
        self._let_go.set()

    def cut(self) -> None:
        """End all connections."""
        with self._change:
            links, self._links = self._links, set()
            self._change.notify_all()
        for link in links:
            link.cut()

    def refuse(self) -> None:
        """End all connections, and every new one at once."""
        self._refuses = True
        self.cut()

    def mend(self) -> None:
        """Take new connections again."""
        self._refuses = False

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            if self._refuses:
                client.close()
                continue
            try:
                server = socket.create_connection(self._server)
            except OSError:
                client.close()
                continue
            self._begin(_Link(client, server))

    def _begin(self, link: _Link) -> None:
        for end in link.ends[Direction.TO_SERVER]:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._change:
            self._links.add(link)  # it may be cut from here on
        for direction, (source, target) in link.ends.items():
            arguments = (link, direction, source, target)
            threading.Thread(target=self._pump, args=arguments, name="proxy-link", daemon=True).start()

    def _pump(self, link: _Link, direction: Direction, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                with self._change:
                    while direction in self._stalled and link in self._links:
                        self._change.wait()
                if not self._is_allowed(link, direction, data):
                    self.harmed += 1
                    break
                self._send(direction, target, data)
        with self._change:
            self._links.discard(link)
            self._change.notify_all()
        link.cut()

    def _send(self, direction: Direction, target: socket.socket, data: bytes) -> None:
        holding = self._holding
        if holding is not None and direction is Direction.TO_SERVER and holding[0] in data:
            self._holding = None
            first = min(holding[1], len(data) - 1)
            target.sendall(data[:first])
            self._held.set()
            self._let_go.wait()
            data = data[first:]
        target.sendall(data)

    def _is_allowed(self, link: _Link, direction: Direction, data: bytes) -> bool:
        if direction is Direction.TO_CLIENT:
            return not link.loses_answer
        fate = self.rule(data)
        link.loses_answer |= fate is Fate.ALLOW_BUT_LOSE_ANSWER
        return fate is not Fate.LOSE_AND_CUT


class Every:
    """A rule: every n-th piece that contains a text has this fate."""

    def __init__(self, count: int, text: bytes, fate: Fate) -> None:
        self._count = count
        self._text = text
        self._fate = fate
        self._seen = 0

    def __call__(self, data: bytes) -> Fate:
        if self._text not in data:
            return Fate.ALLOW
        self._seen += 1
        return Fate.ALLOW if self._seen % self._count else self._fate
