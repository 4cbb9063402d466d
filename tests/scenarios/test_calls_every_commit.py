"""A crash at every commit of retried executions, of calls that wait for their bodies, and of awaited messages."""

import asyncio

import holdfast as hf


@hf.activity(retry=hf.Retry(attempts=3, initial=0.1))
async def slow(text: str) -> str:
    if text == "limited" and hf.activity_info().attempt == 1:
        raise hf.RetryAfter(5)
    if text == "slow":
        await asyncio.sleep(60)  # simulated time
    return text


@hf.workflow
async def listens(word: str) -> str:
    return word + await hf.event("word", str)


@hf.workflow(retry=hf.Retry(attempts=3, initial=10, jitter=False))
async def retried() -> str:
    attempt = hf.info().attempt
    found = [await slow.with_options(start_to_close=100)("limited")]
    try:
        async with asyncio.timeout(5):
            await slow.with_options(on_cancel="wait")("slow")
    except TimeoutError:
        found.append("timed out")
    child = await hf.start(listens, f"{attempt}", id="listener", policy="terminate_existing")
    await child.raise_event("word", "x")
    found.append(await child)
    try:
        await hf.raise_event("nobody", "word")
    except hf.InstanceNotFound:
        found.append("nobody")
    if attempt < 2:
        raise ValueError(attempt)
    return f"{attempt} {found}"


def test_G18_a_crash_at_every_commit_of_retries_changes_nothing() -> None:
    async def scenario() -> None:
        async with hf.testing.Environment(workflows=[retried, listens], activities=[slow]) as env:
            report = await env.crash_at_every_commit(retried)
        assert report.problems == []
        assert report.crashes > 10
        assert "nobody" in report.result

    asyncio.run(scenario())
