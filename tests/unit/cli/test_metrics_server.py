"""The HTTP server of the metrics: limits, probes, and reads of the store that are bounded (M2, M3)."""

import asyncio
import socket
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest

import holdfast as hf
from holdfast.cli import http_responder, metrics
from holdfast.cli.http_responder import HttpResponder, Request, Response
from holdfast.cli.metrics import ListenAddress, MetricsServer, StoreReader, parse_address
from holdfast.client.metrics import WorkerGauges, observe, read_gauges
from holdfast.errors import UsageError
from holdfast.runtime.platform import Platform

SECONDS = 20.0
GAUGES = WorkerGauges(
    key="k", cache_size=1, slots_free=2, slots_taken=3, lease_seconds=4.0, is_beating=True, is_leaving=False
)


@hf.workflow
async def greet(name: str) -> str:
    return name


@pytest.mark.parametrize(
    ("text", "host", "port", "url"),
    [
        ("9464", "127.0.0.1", 9464, "http://127.0.0.1:9464"),
        ("0.0.0.0:80", "0.0.0.0", 80, "http://0.0.0.0:80"),  # noqa: S104 - written out
        ("[::1]:1", "::1", 1, "http://[::1]:1"),
        ("db.example:65535", "db.example", 65535, "http://db.example:65535"),
    ],
)
def test_M3_an_address_without_a_host_is_on_this_machine_only(text: str, host: str, port: int, url: str) -> None:
    assert parse_address(text) == ListenAddress(host, port)
    assert parse_address(text).url == url


@pytest.mark.parametrize("text", ["", "x", ":1", "1:", "-1", "65536", "127.0.0.1", "a:b", "1.5", "٣"])
def test_M3_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not \\[HOST:\\]PORT"):
        parse_address(text)


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UsageError, match=r"pip install 'holdfast\[metrics\]'"):
        metrics.require_prometheus()


# ---------------------------------------------------------------- HTTP


async def page(request: Request) -> Response:
    if request.path == "/broken":
        raise ValueError("secret of the page")
    return Response(200, f"{request.path} {request.accept}")


@asynccontextmanager
async def serving(respond: Callable[[Request], Awaitable[Response]] = page) -> AsyncGenerator[int]:
    responder = HttpResponder(respond)
    port = await responder.listen("127.0.0.1", 0)
    waiting = asyncio.create_task(responder.wait())
    try:
        yield port
    finally:
        responder.stop()
        await asyncio.gather(waiting, return_exceptions=True)


async def asked(port: int, data: bytes) -> tuple[int, str]:
    """The status and the rest of an answer to a whole request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    answer = (await reader.read()).decode()
    writer.close()
    return int(answer.split(" ")[1]), answer


def bounded(case: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(SECONDS):
            await case()

    asyncio.run(run())


def test_M3_only_get_and_only_requests_of_a_limited_size_are_answered() -> None:
    async def case() -> None:
        async with serving() as port:
            status, text = await asked(port, b"GET /a?b=c HTTP/1.1\r\nAccept: text/x\r\n\r\n")
            assert status == 200
            assert text.endswith("/a text/x")
            assert "nosniff" in text
            status, text = await asked(port, b"HEAD /a HTTP/1.1\r\n\r\n")
            assert status == 200
            assert text.endswith("\r\n\r\n")
            for method in (b"POST", b"PUT", b"DELETE", b"OPTIONS", b"TRACE", b"get"):
                status, text = await asked(port, method + b" /a HTTP/1.1\r\n\r\n")
                assert status == 405
                assert "Allow: GET, HEAD" in text
            for nonsense in (b"\r\n\r\n", b"GET /\r\n\r\n", b"GET / SPDY/3\r\n\r\n", b"\xff\xfe\r\n\r\n"):
                assert (await asked(port, nonsense))[0] == 400
            assert (await asked(port, b"GET / HTTP/1.1\r\nX: " + b"x" * 8_192))[0] == 431
            status, text = await asked(port, b"GET /broken HTTP/1.1\r\n\r\n")
            assert status == 500
            assert "secret" not in text

    bounded(case)


def test_M3_slow_clients_hold_few_connections_for_a_short_time_and_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_responder, "MOST_CONNECTIONS", 4)
    monkeypatch.setattr(http_responder, "HEAD_SECONDS", 0.3)

    async def case() -> None:
        async with serving() as port:
            slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            for _, writer in slow:
                writer.write(b"GET / HT")
            assert (await asked(port, b"GET / HTTP/1.1\r\n\r\n"))[0] == 200
            slow.append(await asyncio.open_connection("127.0.0.1", port))
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with suppress(ConnectionResetError):
                assert await reader.read() == b"", "there are too many connections"
            writer.close()
            for reader, writer in slow:
                assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
                writer.close()
            assert (await asked(port, b"GET / HTTP/1.1\r\n\r\n"))[0] == 200

    bounded(case)


def dropped(client: socket.socket) -> int:
    """Do not read until the other side has given up, then read what is there."""
    with suppress(TimeoutError):
        client.settimeout(0.6)
        client.recv(1, socket.MSG_PEEK | socket.MSG_WAITALL)
        threading.Event().wait(0.6)
    received = 0
    with suppress(ConnectionResetError):
        while data := client.recv(1_000_000):
            received += len(data)
    return received


def test_M3_a_client_that_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_responder, "BODY_SECONDS", 0.2)

    async def large(_: Request) -> Response:
        return Response(200, b"x" * 50_000_000)

    async def case() -> None:
        async with serving(large) as port:
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(b"GET / HTTP/1.1\r\n\r\n")
                received = await asyncio.to_thread(dropped, client)
            assert received < 50_000_000
            assert (await asked(port, b"GET / HTTP/1.1\r\n\r\n"))[0] == 200

    bounded(case)


# ---------------------------------------------------------------- probes


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:  # noqa: S310 - of this test
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_M3_live_fails_while_the_event_loop_of_the_worker_is_blocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "READ_SECONDS", 0.3)
    gauges = [GAUGES]

    async def case() -> None:
        async with hf.Engine(tmp_path / "shop.db", workflows=[greet]) as engine:
            server = MetricsServer(
                ListenAddress("127.0.0.1", 0), tmp_path / "shop.db", observe(engine), lambda: gauges[0]
            )
            url = server.start()
            try:
                assert await asyncio.to_thread(get, f"{url}/live") == (200, "ok\n")
                assert get(f"{url}/live") == (503, "the event loop of the worker does not answer\n")
                gauges[0] = msgspec.structs.replace(GAUGES, is_beating=False)
                answer = await asyncio.to_thread(get, f"{url}/live")
                assert answer == (503, "the lease thread does not run\n")
                gauges[0] = msgspec.structs.replace(GAUGES, is_leaving=True)
                assert await asyncio.to_thread(get, f"{url}/ready") == (503, "the worker drains\n")
                gauges[0] = GAUGES
                assert await asyncio.to_thread(get, f"{url}/ready") == (503, "the worker has no lease\n")
            finally:
                server.stop()

    bounded(case)


def test_M2_a_store_that_cannot_be_read_leaves_the_counters_of_the_process(tmp_path: Path) -> None:
    async def case() -> None:
        async with hf.connect(tmp_path / "shop.db") as client:
            running = hf.Worker(client, workflows=[greet])
            server = MetricsServer(
                ListenAddress("127.0.0.1", 0), tmp_path / "missing.db", observe(client), lambda: read_gauges(running)
            )
            url = server.start()
            try:
                async with running:
                    assert await client.run(greet, "anna") == "anna"
                    status, text = await asyncio.to_thread(get, f"{url}/metrics")
                    assert status == 200
                    assert 'holdfast_instances_closed_total{outcome="COMPLETED",workflow="greet"} 1.0' in text
                    assert "holdfast_instances_open" not in text
                    status, text = await asyncio.to_thread(get, f"{url}/ready")
                    assert (status, text) == (503, "the store cannot be read: StoreError\n")
            finally:
                server.stop()

    bounded(case)


def test_M3_a_server_that_ends_by_an_error_is_started_again_at_the_same_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [ValueError("as it should be")]
    wait = HttpResponder.wait

    async def failing(self: HttpResponder) -> None:
        """Serve one request, then fail once."""
        if not failures:
            await wait(self)
            return
        await asyncio.to_thread(asked_once.wait, SECONDS)
        await self.close()
        raise failures.pop()

    asked_once = threading.Event()
    monkeypatch.setattr(HttpResponder, "wait", failing)

    async def case() -> None:
        async with hf.Engine(tmp_path / "shop.db", workflows=[greet]) as engine:
            address = ListenAddress("127.0.0.1", 0)
            server = MetricsServer(address, tmp_path / "shop.db", observe(engine), lambda: GAUGES)
            url = server.start()
            try:
                assert (await asyncio.to_thread(get, f"{url}/live"))[0] == 200
                asked_once.set()
                while failures:
                    await asyncio.to_thread(lambda: None)
                is_back = False
                while not is_back:
                    with suppress(urllib.error.URLError, ConnectionError):
                        is_back = (await asyncio.to_thread(get, f"{url}/live"))[0] == 200
            finally:
                server.stop()

    bounded(case)
    assert "the background thread holdfast-metrics failed; it is started again" in caplog.text


class Clock:
    """The clock of a platform, which a test moves."""

    def __init__(self) -> None:
        self.ms = 0.0

    def elapsed_precise_ms(self) -> float:
        return self.ms

    def now_ms(self) -> int:
        return 0


class SlowStore:
    """Takes a while to count, by the clock."""

    def __init__(self, clock: Clock, took_ms: float) -> None:
        self._clock = clock
        self._took_ms = took_ms
        self.reads = 0

    def open_for_reading(self) -> None: ...

    def now_ms(self) -> int:
        return 0

    async def count_open(self, limit: int) -> list[object]:
        assert limit == metrics.MOST_SERIES
        self._clock.ms += self._took_ms
        self.reads += 1
        return []

    async def queues(self) -> list[object]:
        return []


@pytest.mark.parametrize(("took_ms", "pause_ms"), [(1, 1_000), (10, 1_000), (200, 4_000), (5_000, 100_000)])
def test_M2_the_store_is_read_once_a_second_and_during_a_twentieth_of_the_time(
    monkeypatch: pytest.MonkeyPatch, took_ms: float, pause_ms: float
) -> None:
    clock = Clock()
    store = SlowStore(clock, took_ms)

    def opened(*_: object) -> SlowStore:
        return store

    monkeypatch.setattr(metrics, "open_store", opened)

    async def case() -> None:
        reader = StoreReader("x", Platform(providers=clock))  # type: ignore[arg-type]
        await asyncio.gather(*(reader.values() for _ in range(9)))
        assert store.reads == 1
        clock.ms += pause_ms - 1
        await reader.values()
        assert store.reads == 1
        clock.ms += 1
        await reader.values()
        assert store.reads == 2

    bounded(case)
