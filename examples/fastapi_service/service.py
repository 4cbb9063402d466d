"""The web service: a client without a worker.

Requests start instances, raise events and stream changes. The work
happens in `holdfast worker orders.py`, so a restart of the service
loses nothing, and a request that is sent twice starts one order.
"""

import json
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import orders
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, StreamingResponse

import holdfast as hf


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    """One client for each process of the server."""
    store = os.environ["HOLDFAST_STORE"]
    async with hf.connect(store, modules=[orders]) as client:
        app.state.client = client
        yield


app = FastAPI(lifespan=lifespan)


def client_of(request: Request) -> hf.Client:
    client: hf.Client = request.app.state.client
    return client


Holdfast = Annotated[hf.Client, Depends(client_of)]


@app.exception_handler(hf.InstanceNotFound)
async def not_found(
    _request: Request, error: Exception
) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, status_code=404)


@app.put("/orders/{order_id}", status_code=202)
async def place(
    order_id: str, order: orders.Order, client: Holdfast
) -> dict[str, Any]:
    try:
        handle = await client.start(
            orders.checkout, order, id=f"order-{order_id}"
        )
    except hf.InstanceConflict as conflict:
        raise HTTPException(409, str(conflict)) from conflict
    return {"id": handle.id, "new": handle.is_new}


@app.post("/orders/{order_id}/approval", status_code=202)
async def approve(
    order_id: str, ok: bool, client: Holdfast
) -> dict[str, bool]:
    handle = client.get(f"order-{order_id}")
    try:
        await handle.raise_event(orders.approved, ok, id="approval")
    except hf.InstanceClosed as closed:
        raise HTTPException(409, str(closed)) from closed
    return {"accepted": True}


@app.get("/orders/{order_id}")
async def look(order_id: str, client: Holdfast) -> dict[str, Any]:
    found = await client.get(f"order-{order_id}").describe()
    return {"state": found.state, "status": found.custom_status}


@app.get("/orders/{order_id}/changes")
async def changes(order_id: str, client: Holdfast) -> StreamingResponse:
    """Server-sent events until the order has ended."""
    handle = client.get(f"order-{order_id}")
    await handle.describe()  # 404 before the stream begins

    async def events() -> AsyncIterator[str]:
        async for change in handle.watch():
            data = {
                "state": change.state,
                "status": change.custom_status,
            }
            yield f"data: {json.dumps(data)}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")
