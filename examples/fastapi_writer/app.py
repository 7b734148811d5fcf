"""A web service whose concurrent writes share transactions. Run it with `uvicorn app:app`."""

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import fastapi
from pydantic import BaseModel

import actorflow as af
from actorflow.behaviours import Bounded, Queue

DATABASE = os.environ.get("EVENTS", "events.db")


class Event(BaseModel):
    """What a client reports."""

    user: str
    action: str


def save(events: list[Event], transactions: int) -> int:
    """Write all events that arrived during the last transaction in one transaction."""
    rows = [(event.user, event.action) for event in events]
    with closing(sqlite3.connect(DATABASE)) as database, database:
        database.executemany("INSERT INTO events VALUES (?, ?)", rows)
    return transactions + 1


@asynccontextmanager
async def lifespan(app: fastapi.FastAPI) -> AsyncIterator[None]:
    """Start the writer with the service. On SIGTERM, the events that it holds are still written."""
    with closing(sqlite3.connect(DATABASE)) as database:
        database.execute("CREATE TABLE IF NOT EXISTS events (user TEXT, action TEXT)")
    async with af.spawn(save, state=0, behaviour=Bounded(Queue(), 1_000)) as writer:
        app.state.writer = writer
        yield


app = fastapi.FastAPI(lifespan=lifespan)


@app.post("/events", status_code=201)
async def report(event: Event) -> dict[str, str]:
    """Answer once the event is on disk; refuse it if too many are waiting."""
    try:
        await app.state.writer.apush_block(event, timeout=5)
    except af.Full:
        raise fastapi.HTTPException(503, "too many events, try again later") from None
    return {"stored": event.action}


@app.get("/health")
def health() -> dict[str, int | float]:
    """Show how the writer is doing."""
    figures = app.state.writer.statistics()
    return {"processed": figures.processed, "batches": figures.batches, "waiting": figures.held}
