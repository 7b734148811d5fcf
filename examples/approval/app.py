"""A web service for expenses that a person approves. Run it with `uvicorn app:app`."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import fastapi
from pydantic import BaseModel

import actorflow as af

STORE = os.environ.get("EXPENSES", "expenses.db")


class Expense(BaseModel):
    """A payment that somebody wants back."""

    by: str
    what: str
    amount: int


class Decision(BaseModel):
    """The answer of the boss."""

    by: str
    approved: bool


@af.task(retries=5)
def remind(expense: str) -> None:
    """Write a mail to the boss."""
    print("waiting for a decision:", expense)


@af.task(retries=5)
def pay(by: str, amount: int) -> str:
    """Pay; `af.current_task().id` is the idempotency key."""
    return f"paid {amount} to {by}"


class Approval(af.Workflow[str], events=[Decision]):
    """Waits for a decision; reminds the boss each day, and gives up after a month."""

    expense: Expense

    def __init__(self, expense: Expense) -> None:
        self.expense = expense
        self.reminders = 0
        self.outcome = "waiting"

    def handle(self) -> str:
        """Return the outcome, which everybody can see in the properties meanwhile."""
        self.tag(by=self.expense.by)
        while (decision := self.wait(Decision, days=1)) is None:
            self.reminders += 1
            if self.reminders == 30:
                self.outcome = "forgotten"
                return self.outcome
            self.execute(remind(self.expense.what))
        if decision.by == self.expense.by:
            self.outcome = "declined: nobody approves his own expenses"
        elif decision.approved:
            self.outcome = self.execute(pay(self.expense.by, self.expense.amount))
        else:
            self.outcome = f"declined by {decision.by}"
        return self.outcome


@asynccontextmanager
async def lifespan(app: fastapi.FastAPI) -> AsyncIterator[None]:
    """Open the engine with the service, and go on with all expenses."""
    async with af.Engine(STORE) as engine:
        engine.workflows.register(Approval)
        await engine.aresume()
        app.state.engine = engine
        yield


app = fastapi.FastAPI(lifespan=lifespan)


@app.put("/expenses/{name}", status_code=201)
async def submit(name: str, expense: Expense) -> dict[str, str]:
    """Submit an expense; the same name again changes nothing."""
    approval = await app.state.engine.astart(Approval(expense), id=name)
    return {"id": approval.id}


@app.get("/expenses")
def listing() -> dict[str, dict[str, Any]]:
    """Return all expenses with their outcomes."""
    found = app.state.engine.workflows.instances(Approval)
    return {each.id: each.query().properties for each in found}


@app.put("/expenses/{name}/decision", status_code=202)
async def decide(name: str, decision: Decision) -> dict[str, str]:
    """Take a decision. The first one counts."""
    try:
        approval = app.state.engine.workflows.get(Approval, name)
        await approval.asend(decision)
    except LookupError:
        raise fastapi.HTTPException(404, "there is no such expense") from None
    except af.ActorflowError as error:  # it has ended
        raise fastapi.HTTPException(409, str(error)) from None
    return {"id": name, "by": decision.by}
