"""Workflows around one activity, and how its attempts ended."""

from typing import Any

from tests.scenarios.support import check_tables, path_of, skipping, together

import holdfast as hf
from holdfast.core.lifecycle import AttemptState


def calling(activity: hf.Activity[..., Any]) -> hf.Workflow[..., Any]:
    @hf.workflow
    async def flow() -> Any:
        return await activity()

    return flow


def outcome_of(activity: hf.Activity[..., Any], **options: Any) -> tuple[Any, list[AttemptState], list[str | None]]:
    """The result or the cause of the failure, and the states and failures of the attempts. Time skips."""

    async def scenario() -> tuple[Any, list[AttemptState], list[str | None]]:
        flow = calling(activity)
        async with skipping(activity, flow, **options) as engine:
            handle = await engine.start(flow, id="it")
            try:
                result = await handle.result()
            except hf.WorkflowFailed as error:
                result = error.cause
            attempts = (await handle.describe()).attempts
            check_tables(path_of(engine))
            return result, [view.state for view in attempts], [view.failure for view in attempts]

    return together(scenario())
