"""A FastAPI service and a separate worker, both started from here.

    python examples/fastapi_service/run.py

By hand, in two terminals, inside the folder of this file:

    holdfast worker orders.py --store orders.db
    HOLDFAST_STORE=orders.db uvicorn service:app

The example restarts the service while the order is open. Needs
`pip install fastapi uvicorn httpx`.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx

HERE = Path(__file__).parent


@contextmanager
def running(
    *command: str, store: str
) -> Generator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=HERE,
        env={**os.environ, "HOLDFAST_STORE": store},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=60)


def wait_for(port: int) -> None:
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError("the service does not listen")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def main(store: str) -> None:
    port = free_port()
    service = ("uvicorn", "service:app", "--port", str(port))
    order = {"item": "lamp", "cents": 300}
    web = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)
    with running("holdfast", "worker", "orders.py", store=store):
        with running(*service, store=store):
            wait_for(port)
            for _ in range(2):
                print("PUT", web.put("/orders/7", json=order).json())
            other = {"item": "desk", "cents": 1}
            refused = web.put("/orders/7", json=other).status_code
            print("PUT with another body:", refused)
            print(
                "GET an unknown order:",
                web.get("/orders/8").status_code,
            )
        print("the service restarts")
        with running(*service, store=store):
            wait_for(port)
            print("GET", web.get("/orders/7").json())
            web.post("/orders/7/approval", params={"ok": True})
            last = None
            with web.stream("GET", "/orders/7/changes") as changes:
                for line in changes.iter_lines():
                    if line.startswith("data: "):
                        last = json.loads(line.removeprefix("data: "))
            print("last change:", last)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(str(Path(folder, "orders.db")))
