"""``holdfast worker --metrics``: a real scrape of real processes, and counts that equal the tables (M1-M3)."""

import asyncio
import urllib.error
import urllib.request
from collections import Counter
from contextlib import suppress
from functools import partial

from prometheus_client.parser import text_string_to_metric_families
from tests.workers.processes import APP, LONGEST_SECONDS, Process, await_note, key_in, open_gate
from tests.workers.support import told

import holdfast as hf
from holdfast import compose
from holdfast.audit.auditor import audit
from holdfast.client.activity_reports import ActivityReports
from holdfast.client.client import calls_of
from holdfast.core.activity_events import ReportKind
from holdfast.runtime.platform import Platform

METRICS_APP = "tests.workers.metrics_app"
ORDERS = 4
Counts = Counter[tuple[str, ...]]
Page = dict[str, dict[tuple[str, ...], float]]


def url_in(process: Process) -> str:
    headline = process.headline()
    process.key = key_in(headline)
    return headline.rpartition("metrics at ")[2].removesuffix("/metrics")


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=LONGEST_SECONDS) as answer:  # noqa: S310 - of a process of this test
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def scraped(url: str) -> Page:
    """The values of a page by name and labels."""
    status, text = get(f"{url}/metrics")
    assert status == 200
    found: Page = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(sample.labels[name] for name in sorted(sample.labels, reverse=True))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def total(pages: list[Page], name: str) -> Counts:
    """The sum over processes, as a query of Prometheus makes it."""
    counted = Counts()
    for page in pages:
        for labels, value in page.get(name, {}).items():
            counted[labels] += int(value)
    return +counted


async def truth(name: str) -> tuple[Counts, Counts, Counts]:
    """Instances that began, instances that closed, and attempts with a body that ended, as they are stored."""
    store = compose.open_store(name, "full", Platform())
    store.open_for_reading()
    try:
        instances = await store.list_instances(before=2**62, limit=1_000)
        attempts = [each for row in instances for each in await store.read_attempts(row.number, row.execution)]
    finally:
        await store.close()
    started = Counts((row.workflow,) for row in instances if row.turn > 0)
    closed = Counts((row.workflow, str(row.state)) for row in instances if row.closed_at_ms is not None)
    ended = Counts(
        (str(row.state), row.name) for row in attempts if row.closed_at_ms is not None and row.started_at_ms is not None
    )
    return started, closed, ended


async def until_waiting(client: hf.Client, names: list[str]) -> None:
    """Wait until the code of these instances waits for an event."""

    async def waits(name: str) -> bool:
        return bool((await client.get(name).describe()).custom_status == "waits")

    async with asyncio.timeout(LONGEST_SECONDS):
        for name in names:
            await told(partial(waits, name))


def test_M1_the_counts_of_a_killed_worker_and_its_successor_equal_the_tables(store: str) -> None:
    orders = [f"order-{number}" for number in range(ORDERS)]

    async def begin() -> None:
        async with hf.connect(store) as client:
            for name in orders:
                await client.start("order", 3, id=name)
            await client.start("hanging", "hang", id="hanging")
            await client.start("broken", id="broken")
            await client.start("family", 1, id="family")
            await client.start("remote", 1, id="remote")
            with suppress(hf.WorkflowFailed):
                await client.get("broken").result(timeout=LONGEST_SECONDS)
            await until_waiting(client, [*orders, "family"])
            reports = ActivityReports(calls_of(client))
            (offer,) = await reports.open_activities(limit=9)
            for kind, payload in ((ReportKind.RUNNING, None), (ReportKind.COMPLETED, "5")):
                answer = await reports.report(
                    offer.activity_exec_id, kind, claim="me", payload=payload, seconds=LONGEST_SECONDS
                )
                assert answer.is_applied
            assert await client.get("remote").result(timeout=LONGEST_SECONDS) == 5
            children = await client.get("family").children()
            await until_waiting(client, [each.id for each in children])

    async def finish() -> None:
        async with hf.connect(store) as client:
            for name in (*orders, "family"):
                await client.get(name).raise_event("go", 1)
            for name in (*orders, "family", "hanging"):
                await client.get(name).result(timeout=LONGEST_SECONDS)
            for child in await client.get("family").children():
                with suppress(hf.WorkflowCancelled):
                    await client.get(child.id).result(timeout=LONGEST_SECONDS)

    pages: list[Page] = []
    for number in (1, 2):
        with Process(store, "worker", METRICS_APP, "--metrics", "0") as process:
            url = url_in(process)
            if number == 1:
                asyncio.run(begin())
                await_note(store, "began", "hang", 1)
            else:
                await_note(store, "began", "hang", 2)
                open_gate(store, "hang 2")
                asyncio.run(finish())
            pages.append(scraped(url))
            process.kill()
    started, closed, ended = asyncio.run(truth(store))
    assert total(pages, "holdfast_instances_started_total") == started
    assert total(pages, "holdfast_instances_closed_total") == closed
    assert total(pages, "holdfast_activity_attempts_total") == ended
    assert closed["family", "COMPLETED"] == closed["child", "CANCELLED"] == closed["broken", "FAILED"] == 1
    assert {state for state, _ in ended} >= {"COMPLETED", "FAILED", "TIMED_OUT"}
    assert pages[1]["holdfast_replay_seconds_count"][()] >= ORDERS, "they were replayed, and not counted again"
    assert sum(total(pages, "holdfast_activity_seconds_count").values()) == sum(ended.values())
    assert audit(store) == []


def test_M3_a_page_has_counts_of_the_store_and_no_ids_or_payloads(store: str) -> None:
    with Process(store, "worker", METRICS_APP, "--metrics", "127.0.0.1:0") as process:
        url = url_in(process)

        async def begin() -> None:
            async with hf.connect(store) as client:
                await client.start("order", 2, id="canary-of-an-id")
                await until_waiting(client, ["canary-of-an-id"])
                await client.start("not registered", "canary-of-a-payload", id="stranded")
                await client.start("remote", 1, id="outside")
                reports = ActivityReports(calls_of(client))
                async with asyncio.timeout(LONGEST_SECONDS):
                    await told(lambda: reports.open_activities(limit=9))

        asyncio.run(begin())
        page = scraped(url)
        status, text = get(f"{url}/metrics")
        assert status == 200
        assert "canary" not in text
        assert page["holdfast_instances_open"]["order", "RUNNING"] == 1
        assert page["holdfast_instances_open"]["not registered", "REQUESTED"] == 1
        assert page["holdfast_queue_depth"]["default",] == 1
        assert page["holdfast_queue_oldest_seconds"]["default",] >= 0
        assert 0 < page["holdfast_worker_lease_seconds"][()] <= 8
        assert page["holdfast_worker_slots"] == {("free",): 100, ("taken",): 0}
        assert page["holdfast_cache_size"][()] == 2
        assert get(f"{url}/live") == (200, "ok\n")
        assert get(f"{url}/ready") == (200, "ok\n")
        assert get(f"{url}/other")[0] == 404


def test_M3_a_worker_without_its_lease_is_live_and_not_ready(store: str) -> None:
    with Process(store, "worker", METRICS_APP, "--metrics", "0", "--lease", "60") as process:
        url = url_in(process)
        assert get(f"{url}/ready")[0] == 200

        async def end_lease() -> None:
            async with hf.connect(store) as client:
                await client.restored(force=True)

        asyncio.run(end_lease())
        status, reason = get(f"{url}/ready")
        assert (status, reason) == (503, "the worker has no lease\n")
        assert get(f"{url}/live")[0] == 200


def test_M3_a_port_that_is_taken_is_a_sentence(store: str) -> None:
    with Process(store, "worker", METRICS_APP, "--metrics", "0") as process:
        port = url_in(process).rpartition(":")[2]
        other = Process(store, "worker", APP, "--metrics", port)
        code, said = other.left()
        assert code == 2
        assert f"--metrics cannot listen at 127.0.0.1:{port}" in said
        assert "Traceback" not in said
