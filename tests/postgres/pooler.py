"""A pooler that shares server connections between transactions, as PgBouncer does with `pool_mode = transaction`.

A client gets a server connection with its first message, and keeps it until the server is ready for another
transaction. Then it goes to the end of a queue, so that the next transaction of the client nearly always has another
one. What a client leaves in a session is found by others, and missed by itself.
"""

import select
import socket
import struct
import threading
from collections import deque
from contextlib import suppress
from typing import Self

SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102
NO = b"N"
TERMINATE = b"X"
READY, IDLE = b"Z", b"I"
ASKS_FOR_READY = (b"S", b"Q")
"""Sync and a simple query: the server answers each, in the end, that it is ready."""
HEADER = struct.Struct("!cI")
LENGTH_BYTES = 4


class _Stream:
    """Messages of PostgreSQL's protocol from one socket."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link

    def exactly(self, count: int) -> bytes:
        """So many bytes; `ConnectionError` if they do not come."""
        parts = bytearray()
        while len(parts) < count:
            part = self.link.recv(count - len(parts))
            if not part:
                raise ConnectionError("closed")
            parts += part
        return bytes(parts)

    def first(self) -> tuple[int, bytes]:
        """The message that begins a connection: its code, and all of it."""
        length = self.exactly(LENGTH_BYTES)
        rest = self.exactly(struct.unpack("!I", length)[0] - LENGTH_BYTES)
        return struct.unpack("!I", rest[:LENGTH_BYTES])[0], length + rest

    def message(self) -> tuple[bytes, bytes]:
        """The next message: its kind, and all of it."""
        header = self.exactly(HEADER.size)
        kind, length = HEADER.unpack(header)
        return kind, header + self.exactly(length - LENGTH_BYTES)


class Pooler:
    """Between clients and a server on 127.0.0.1. All clients must be of one role and database."""

    def __init__(self, server_port: int, size: int) -> None:
        self._server = ("127.0.0.1", server_port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.transactions = 0
        self.moves = 0
        """How often a client got another server connection than the time before."""
        self._size = size
        self._free: deque[_Stream] = deque()
        self._greeting = self._startup = b""
        self._change = threading.Condition()
        self._links: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._is_closed = False
        self._thread = threading.Thread(target=self._accept, name="pooler", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed = True
        for link in (self._listener, *self._links):
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
        with self._change:
            self._change.notify_all()
        for thread in (self._thread, *self._threads):
            thread.join()
        for link in (self._listener, *self._links):
            link.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                link, _ = self._listener.accept()
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._links.add(link)
                self._threads.append(threading.Thread(target=self._serve, args=(link,), name="pooler", daemon=True))
                self._threads[-1].start()

    def _serve(self, link: socket.socket) -> None:
        client = _Stream(link)
        with suppress(OSError):
            code, startup = client.first()
            while code in (SSL_REQUEST, GSS_REQUEST):
                link.sendall(NO)
                code, startup = client.first()
            if code != CANCEL_REQUEST:
                self._fill(startup)
                link.sendall(self._greeting)
                self._serve_transactions(client)
        self._end(link)

    def _end(self, link: socket.socket) -> None:
        self._links.discard(link)
        link.close()

    def _fill(self, startup: bytes) -> None:
        """Connect to the server, once, as the first client asks to. What it says then is said to every client."""
        with self._change:
            if not self._startup:
                self._startup = startup
                self._free.extend(self._connect() for _ in range(self._size))

    def _connect(self) -> _Stream:
        server, said = _Stream(socket.create_connection(self._server)), b""
        self._links.add(server.link)
        server.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.link.sendall(self._startup)
        kind = b""
        while kind != READY:
            kind, message = server.message()
            said += message
        self._greeting = said
        return server

    def _serve_transactions(self, client: _Stream) -> None:
        before: _Stream | None = None
        while True:
            kind, message = client.message()
            if kind == TERMINATE:
                return
            server = self._take()
            self.transactions += 1
            self.moves += before is not None and before is not server
            before = server
            is_clean = False
            try:
                is_clean = one_transaction(client, server, kind, message)
            finally:
                self._give_back(server, is_clean)
            if not is_clean:
                return

    def _take(self) -> _Stream:
        with self._change:
            self._change.wait_for(lambda: self._free or self._is_closed)
            if self._is_closed:
                raise ConnectionError("closed")
            return self._free.popleft()

    def _give_back(self, server: _Stream, is_clean: bool) -> None:
        """One that was left in the middle of a transaction is of no use to others."""
        if not is_clean:
            self._end(server.link)
            server = self._connect()
        with self._change:
            self._free.append(server)
            self._change.notify()


def one_transaction(client: _Stream, server: _Stream, kind: bytes, message: bytes) -> bool:
    """Pass messages on until the server is ready for another transaction. False: the client has left before."""
    answers = 0
    is_synced = True
    while kind != TERMINATE:
        if kind:
            server.link.sendall(message)
            answers += kind in ASKS_FOR_READY
            is_synced = kind in ASKS_FOR_READY
        kind = b""
        ready, _, _ = select.select([client.link, server.link], [], [])
        if server.link in ready:
            said, answer = server.message()
            client.link.sendall(answer)
            answers -= said == READY
            if said == READY and answers == 0 and is_synced and answer[-1:] == IDLE:
                return True
        elif client.link in ready:
            kind, message = client.message()
    return False
