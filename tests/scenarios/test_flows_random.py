"""Random flows end as the oracle says on every store, in real time. Many more are simulated in `simulation`."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from tests.scenarios.support import engine_of, path_of, together
from tests.simulation.flow_oracle import foretell
from tests.simulation.flow_plans import CHILD, Plan, plans, work
from tests.simulation.test_random_flows import check_end, job_of
from tests.support.examples import examples

import holdfast as hf
from holdfast.audit.auditor import audit
from holdfast.testing.simulation.simulation import RaiseEvent

EXAMPLES = examples(dev=8, ci=25, nightly=200)


async def play(plan: Plan, cache_size: int) -> None:
    told = foretell(plan)
    job = job_of(plan, told)
    async with engine_of(":memory:", job.workflow, CHILD, work, cache_size=cache_size) as engine:
        handle = await engine.start(job.workflow, *job.arguments, id=job.id)
        for number, action in enumerate(job.actions):
            if isinstance(action, RaiseEvent):
                try:
                    await handle.raise_event(action.name, action.value, id=f"action-{number}")
                except hf.InstanceClosed:  # it failed fast
                    break
            await asyncio.sleep(0)
        try:
            result = await handle.result()
        except hf.WorkflowFailed as failure:
            result = f"failed: {failure.cause}"
        assert result == job.expected
        check_end(plan, told, path_of(engine))
        assert audit(path_of(engine)) == []


@pytest.mark.parametrize("cache_size", [1_000, 0])
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(plan=plans())
def test_K3_K4_K5_K8_random_flows_end_as_the_oracle_says(plan: Plan, cache_size: int) -> None:
    together(play(plan, cache_size))
