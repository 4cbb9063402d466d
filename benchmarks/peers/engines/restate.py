"""Restate: its server with its own storage, a service process (`restate_service`), and a client over HTTP.

A call of a handler with an idempotency key is a durable start; its response is the result. `$HOLDFAST_PEERS_RESTATE`
names the program of the server.
"""

import asyncio
import importlib
import os
import socket
import subprocess
import sys
from typing import Any, Final

from benchmarks.peers.workloads import WAITER, Peer

aiohttp: Any = importlib.import_module("aiohttp")
SERVER_VARIABLE: Final = "HOLDFAST_PEERS_RESTATE"
SERVICE: Final = "benchmarks.peers.engines.restate_service"
TRIES: Final = 300
GLANCE_SECONDS: Final = 0.1
SETTLE_SECONDS: Final = 1.0
FIRST_ERROR: Final = 300


def _free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that are free now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class Engine(Peer):
    """Restate."""

    kills_worker_only = True

    async def open(self) -> None:
        ingress, admin, node, self._service_port = _free_ports(4)
        self._ingress = f"http://127.0.0.1:{ingress}"
        self._calls: dict[str, asyncio.Future[Any]] = {}
        self._server = self._start_server(ingress, admin, node)
        self.start_worker()
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
        await self._register(f"http://127.0.0.1:{admin}/deployments")
        await asyncio.sleep(SETTLE_SECONDS)

    def _start_server(self, ingress: int, admin: int, node: int) -> "subprocess.Popen[bytes]":
        environment = {
            **os.environ,
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
            "RESTATE_BIND_IP": "127.0.0.1",
            "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
            "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{node}",
            "RESTATE_DISABLE_TELEMETRY": "true",
            "RESTATE_LOG_FILTER": "warn",
        }
        command = [os.environ[SERVER_VARIABLE], "--base-dir", self.store, "--node-name", "peer", "--listen-mode", "tcp"]
        with (self.folder / "server.log").open("wb") as log:
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log)  # noqa: S603

    def start_worker(self) -> None:
        with (self.folder / "service.log").open("ab") as log:
            command = [sys.executable, "-m", SERVICE, str(self._service_port)]
            self._service = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603

    def kill_worker(self) -> None:
        self._service.kill()
        self._service.wait()

    async def _register(self, url: str) -> None:
        """Register the service, as soon as the server and the service answer."""
        last = "no answer"
        for _ in range(TRIES):
            try:
                given = {"uri": f"http://127.0.0.1:{self._service_port}", "force": True}
                async with self._session.post(url, json=given) as response:
                    if response.ok:
                        return
                    last = await response.text()
            except aiohttp.ClientError as error:
                last = str(error)
            await asyncio.sleep(GLANCE_SECONDS)
        raise RuntimeError(f"the service cannot be registered: {last}")

    async def close(self) -> None:
        await self._session.close()
        self.kill_worker()
        self._server.kill()
        self._server.wait()

    async def _call(self, path: str, value: object, key: str = "") -> Any:
        headers = {"idempotency-key": key} if key else {}
        async with self._session.post(f"{self._ingress}/{path}", json=value, headers=headers) as response:
            if not response.ok:
                raise RuntimeError((await response.text())[:FIRST_ERROR])
            return await response.json(content_type=None) if response.content_length else None

    def _run(self, kind: str, instance: str, size: int) -> Any:
        given = {"instance": instance, "size": size}
        if kind == WAITER:
            return self._call(f"waiter/{instance}/run", given)
        return self._call(f"peer/{kind}", given, instance)

    async def start(self, kind: str, instance: str, size: int) -> None:
        """The call waits for the result; it is durable once the server has it."""
        self._calls[instance] = asyncio.ensure_future(self._run(kind, instance, size))

    async def result(self, instance: str) -> Any:
        return await self._calls[instance]

    async def run(self, kind: str, instance: str, size: int) -> Any:
        return await self._run(kind, instance, size)

    async def raise_event(self, instance: str, value: int) -> None:
        await self._call(f"waiter/{instance}/go", value)
