"""A web service that starts orders and runs none: `uvicorn web:app --workers 4`."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import fastapi
from shop import Order  # type: ignore[import-not-found] # beside this file

import actorflow as af

STORE = os.environ.get("STORE", "postgresql://shop@db/shop")


@asynccontextmanager
async def lifespan(app: fastapi.FastAPI) -> AsyncIterator[None]:
    """Open an engine in each process of the server, after the fork."""
    with af.Engine(STORE, worker=False) as engine:
        engine.workflows.register(Order)
        app.state.engine = engine
        yield


app = fastapi.FastAPI(lifespan=lifespan)


@app.put("/orders/{number}", status_code=202)
async def place(number: str) -> dict[str, str | int]:
    """Store an order; a repetition finds the same one."""
    order = await app.state.engine.astart(Order(number), id=f"order-{number}")
    return {"order": order.id, "process": os.getpid()}


@app.get("/orders/{number}")
async def look(number: str, wait: float = 0.0) -> dict[str, str | None]:
    """Return how an order stands; wait for its end at most so many seconds."""
    order = app.state.engine.workflows.get(Order, f"order-{number}")
    try:
        return {"status": "done", "parcel": await order.aresult(timeout=wait)}
    except af.WaitTimeout:
        return {"status": "active", "parcel": None}


@app.get("/healthz")
def health() -> dict[str, int]:
    """Answer while the process works, also if the store is away."""
    return {"process": os.getpid()}
