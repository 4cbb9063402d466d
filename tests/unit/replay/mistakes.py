"""Workflow code with the mistakes the guard has to find. The mistake of each is in its line with MISTAKE."""
# pyright: basic

import asyncio
import datetime
import os
import random
import secrets
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from datetime import date
from pathlib import Path


async def sleeps() -> None:
    time.sleep(0)  # MISTAKE


async def opens() -> None:
    open(os.devnull)  # MISTAKE


async def reads_a_path() -> None:
    Path(os.devnull).read_text()  # MISTAKE


async def connects() -> None:
    socket.create_connection(("localhost", 1))  # MISTAKE


async def starts_a_process() -> None:
    subprocess.run(["true"])  # MISTAKE


async def runs_a_command() -> None:
    os.system("true")  # MISTAKE


async def forks() -> None:
    if os.fork() == 0:  # MISTAKE
        os._exit(0)


async def executes() -> None:
    os.execv("nowhere", ["nowhere"])  # MISTAKE


async def connects_to_a_database() -> None:
    sqlite3.connect(":memory:")  # MISTAKE


async def fetches() -> None:
    urllib.request.urlopen("http://localhost:1")  # MISTAKE


async def starts_a_thread() -> None:
    threading.Thread(target=print).start()  # MISTAKE


async def lists_a_directory() -> None:
    os.listdir(".")  # MISTAKE


EVENTS = (
    *((sleeps,) if sys.version_info >= (3, 13) else ()),
    opens,
    reads_a_path,
    connects,
    starts_a_process,
    runs_a_command,
    forks,
    executes,
    connects_to_a_database,
    fetches,
    *((starts_a_thread,) if sys.version_info >= (3, 12) else ()),
    lists_a_directory,
)


async def asks_for_now() -> None:
    datetime.datetime.now()  # MISTAKE


async def asks_for_now_in_a_zone() -> None:
    datetime.datetime.now(tz=datetime.UTC)  # MISTAKE


async def asks_for_today() -> None:
    date.today()  # MISTAKE


async def asks_for_the_time() -> None:
    time.time()  # MISTAKE


async def asks_for_monotonic_time() -> None:
    time.monotonic_ns()  # MISTAKE


async def asks_for_a_counter() -> None:
    time.perf_counter()  # MISTAKE


async def draws() -> None:
    random.random()  # MISTAKE


async def draws_an_integer() -> None:
    random.randint(1, 6)  # MISTAKE


async def chooses() -> None:
    random.choice([1, 2])  # MISTAKE


async def shuffles() -> None:
    random.shuffle([1, 2])  # MISTAKE


async def makes_a_uuid() -> None:
    uuid.uuid4()  # MISTAKE


async def takes_bytes() -> None:
    os.urandom(1)  # MISTAKE


async def makes_a_token() -> None:
    secrets.token_hex(4)  # MISTAKE


async def chooses_in_secret() -> None:
    secrets.choice([1, 2])  # MISTAKE


async def in_a_helper() -> None:
    def helper() -> float:
        return time.time()  # MISTAKE

    await asyncio.sleep(0)
    helper()


CALLS = (
    asks_for_now,
    asks_for_now_in_a_zone,
    asks_for_today,
    asks_for_the_time,
    asks_for_monotonic_time,
    asks_for_a_counter,
    draws,
    draws_an_integer,
    chooses,
    shuffles,
    makes_a_uuid,
    takes_bytes,
    makes_a_token,
    chooses_in_secret,
    in_a_helper,
)


async def innocent() -> list[object]:
    """Everything here is allowed in a strict turn."""
    import traceback
    import wsgiref.util  # a module nobody else imports
    import zoneinfo

    own = random.Random(7)
    moment = datetime.datetime(2026, 1, 2, tzinfo=zoneinfo.ZoneInfo("UTC"))
    try:
        raise ValueError
    except ValueError:
        text = traceback.format_exc()
    async with asyncio.timeout(1):
        await asyncio.sleep(0)
    return [own.randint(1, 6), own.random(), own.choice([1, 2]), moment, text, wsgiref.util, uuid.UUID(int=1)]


async def catches() -> str:
    try:
        time.time()  # MISTAKE
    except Exception:
        return "caught"
    return "not found"
