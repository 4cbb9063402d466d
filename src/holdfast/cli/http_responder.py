"""A small HTTP server for pages that programs poll: GET only, one request for each connection, everything limited (M3).

A client that sends or reads slowly holds one of a limited number of connections for a limited time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

logger = logging.getLogger("holdfast")

MOST_CONNECTIONS: Final = 32
MOST_HEAD_BYTES: Final = 8_192
"""The request line and the headers."""
HEAD_SECONDS: Final = 5.0
BODY_SECONDS: Final = 15.0
"""How long a page may take to be made, and how long a client may take to read it."""
END_OF_HEAD: Final = b"\r\n\r\n"
WORDS_OF_REQUEST: Final = 3
METHODS: Final = ("GET", "HEAD")
TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Request:
    """A GET."""

    path: str
    accept: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """A page."""

    status: int
    body: str | bytes
    content_type: str = TEXT


class HttpResponder:
    """Answers requests by a function. Used on one event loop."""

    def __init__(self, respond: Callable[[Request], Awaitable[Response]]) -> None:
        self._respond = respond
        self._connections: set[asyncio.Task[None]] = set()
        self._stopped: asyncio.Event | None = None
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> int:
        """Listen at an address. Returns the port."""
        self._stopped = asyncio.Event()
        self._server = await asyncio.start_server(self._serve, host, port, limit=MOST_HEAD_BYTES)
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    def stop(self) -> None:
        if self._stopped is not None:
            self._stopped.set()

    async def wait(self) -> None:
        """Serve until `stop`. Connections that are open then are dropped."""
        if self._stopped is not None:
            await self._stopped.wait()
            await self.close()

    async def close(self) -> None:
        """Listen no more, and drop the connections."""
        if self._server is not None:
            self._server.close()
            for connection in self._connections:
                connection.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if len(self._connections) >= MOST_CONNECTIONS:
            writer.transport.abort()
            return
        if task is not None:
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
        try:
            with suppress(OSError, TimeoutError, asyncio.CancelledError):
                response, has_body = await self._answer(reader)
                async with asyncio.timeout(BODY_SECONDS):
                    writer.write(_encoded(response, has_body=has_body))
                    await writer.drain()
        finally:
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()  # the client does not read
            else:
                writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[Response, bool]:
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head = await reader.readuntil(END_OF_HEAD)
        except asyncio.LimitOverrunError:
            return Response(431, "the request is too large\n"), True
        except asyncio.IncompleteReadError:
            return Response(400, "the request is not complete\n"), True
        except TimeoutError:
            return Response(408, "the request took too long\n"), True
        line, *headers = head.decode("latin-1").split("\r\n")
        words = line.split(" ")
        if len(words) != WORDS_OF_REQUEST or not words[2].startswith("HTTP/1."):
            return Response(400, "not an HTTP request\n"), True
        if words[0] not in METHODS:
            return Response(405, "only GET\n"), True
        accept = next((each[7:].strip() for each in headers if each.lower().startswith("accept:")), "")
        try:
            async with asyncio.timeout(BODY_SECONDS):
                return await self._respond(Request(words[1].partition("?")[0], accept)), words[0] == "GET"
        except TimeoutError:
            return Response(503, "the page took too long\n"), True
        except Exception:
            logger.exception("a page of the metrics could not be made")
            return Response(500, "the page could not be made\n"), True


def _encoded(response: Response, *, has_body: bool) -> bytes:
    body = response.body.encode() if isinstance(response.body, str) else response.body
    lines = [
        f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    if response.status == HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append(f"Allow: {', '.join(METHODS)}")
    return "\r\n".join([*lines, "", ""]).encode() + (body if has_body else b"")
