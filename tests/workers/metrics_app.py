"""Workflows whose every kind of end is counted: completed, failed, retried, lost, cancelled, terminated, external."""

from tests.workers.app import gate, note

import holdfast as hf

# mypy: disable-error-code="empty-body"


@hf.activity(retry=hf.Retry(attempts=3, initial=0.001, jitter=False))
async def flaky(number: int) -> int:
    if hf.activity_info().attempt == 1 and number % 2 == 0:
        raise ConnectionError("not yet")
    return number


@hf.activity
async def gated(name: str) -> str:
    attempt = hf.activity_info().attempt
    note("began", name, attempt)
    await gate(f"{name} {attempt}")
    return name


@hf.activity(external=True, start_to_close=60)
async def outside(number: int) -> int: ...


@hf.workflow(name="child")
async def child(number: int) -> int:
    await flaky(number)
    hf.set_status("waits")
    await hf.event("never", int)
    return number


@hf.workflow(name="order")
async def order(number: int) -> int:
    total = 0
    for each in range(number):
        total += await flaky(each)
    hf.set_status("waits")
    return total + await hf.event("go", int)


@hf.workflow(name="hanging")
async def hanging(name: str) -> str:
    return await gated(name)


@hf.workflow(name="broken")
async def broken() -> None:
    await flaky(1)
    raise ValueError("as it should be")


@hf.workflow(name="family")
async def family(number: int) -> int:
    started = await hf.start(child, number)
    hf.set_status("waits")
    await hf.event("go", int)
    started.cancel()
    return number


@hf.workflow(name="remote")
async def remote(number: int) -> int:
    return await outside(number)
