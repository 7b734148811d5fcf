"""Everything that blocks has a twin for asyncio, which does the same."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.engine.kinds.worker_handle import DurableWorker
from actorflow.engine.operations.dead_letters import Letters
from actorflow.engine.operations.maintenance import Upkeep
from actorflow.engine.schedules import Schedule
from actorflow.flows.errors import FlowMessageRefused
from actorflow.flows.service.flows import Flows
from actorflow.testing import VirtualClock
from tests.flows.engines import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

TWINS = {
    af.Engine: (
        "bulk", "cancel", "close", "every", "fail_task", "launch", "pause", "result", "resume",
        "return_task", "schedule", "send", "start", "wait",
    ),
    Flows: (
        "add_branches", "add_iterations", "kill", "launch", "launch_many", "re_apply",
        "return_task", "signal", "wait_for",
    ),
    DurableWorker: ("ask", "push", "push_ack", "push_block"),
    Letters: ("purge", "retry"),
    Upkeep: ("backup", "delete", "purge"),
    Schedule: ("backfill", "delete", "pause", "resume", "trigger"),
}  # fmt: skip
AT_ONCE = {
    af.Engine: {
        "closed", "dead_letters", "execution", "executions", "heartbeat", "outcome", "register",
        "serve_agent", "statistics",
        "tasker", "worker", "workers",
    },
    Flows: {"define", "router", "subflow", "tasker"},
    DurableWorker: {"dead_letters", "depth", "push_many", "state", "statistics"},
    Letters: set[str](),
    Upkeep: {"family"},
    Schedule: {"cron", "kind", "name", "next", "paused", "running", "zone"},
}  # fmt: skip
"""What looks, registers or does not wait."""
NAMES = {"wait": "await_", "wait_for": "await_for"}


@pytest.mark.parametrize("owner", TWINS, ids=lambda owner: owner.__name__)
def test_whatever_blocks_has_a_twin_with_the_same_arguments(owner: type) -> None:
    twins = {name: NAMES.get(name, f"a{name}") for name in TWINS[owner]}
    for name, twin in twins.items():
        assert inspect.iscoroutinefunction(getattr(owner, twin))
        given, wanted = (inspect.signature(getattr(owner, each)) for each in (twin, name))
        assert given.parameters == wanted.parameters, twin
    public = {name for name in dir(owner) if not name.startswith("_")}
    assert public == AT_ONCE[owner] | set(twins) | set(twins.values())


def test_the_twins_of_an_engine(tmp_path: Path) -> None:
    def job(batch: list[Any], state: list[Any]) -> list[Any]:
        if "bad" in batch:
            raise ValueError("bad")
        return [*state, *batch]

    async def go() -> None:
        async with af.Engine(tmp_path / "s.db", clock=VirtualClock()) as engine:
            engine.tasker("desk", lambda task: af.HOLD)
            worker = engine.worker("w", job, state=[])
            await engine.aresume()
            for answer in (engine.areturn_task, engine.afail_task):
                exid = await engine.alaunch("desk 'look'")
                await engine.flows.await_for(exid, "task", PATIENCE)
                (task,) = engine.execution(exid).view.tasks
                what: Any = {"seen": True} if answer == engine.areturn_task else ValueError("no")
                assert await answer(task.id, what)
                assert not await answer(task.id, what)
                ended = await engine.await_(exid, PATIENCE)
                assert ended.status == ("done" if isinstance(what, dict) else "stuck")
            with pytest.raises(ValueError, match="bad"):
                await worker.apush_block("bad")
            assert await worker.dead_letters.aretry() == 1
            await worker.apush_block("after")
            assert await worker.dead_letters.apurge() == 1
            await engine.aevery("e", "* * * * *", worker, "tick")
            assert engine.execution("cron:e").kind == "cron"
            await engine.upkeep.abackup(tmp_path / "copy.db")
            assert await engine.upkeep.apurge(before=1e9) == 1
        assert (tmp_path / "copy.db").exists()

    asyncio.run(go())


def test_the_twins_of_flows() -> None:
    async def go() -> None:
        async with af.Engine(":memory:") as engine:
            flows = engine.flows
            engine.tasker("desk", lambda task: af.HOLD)
            first, second = await flows.alaunch_many("desk 'look'", [{"n": 1}, {"n": 2}])
            await flows.await_for(first, "task", PATIENCE)
            await flows.areturn_task(first, "0", {"by": "hand"})
            assert await engine.aresult(first, PATIENCE) == {"by": "hand"}
            with pytest.raises(FlowMessageRefused):
                await flows.areturn_task(first, "0", {})
            assert await flows.akill(second)
            assert not await flows.akill(second, "0_7")
            exid = await engine.alaunch(
                "sequence\n  stall tag 'a'\n  concurrence\n    stall _\n  trap signal: 'go'"
            )
            await flows.are_apply(
                exid, "0_0", "sequence\n  trap signal: 'go' count: 1\n    _skip 1"
            )
            await flows.asignal(exid, "go")
            exid = await engine.alaunch("concurrence\n  stall _\n  stall _")
            await flows.aadd_branches(exid, "0", ["stall _"])
            assert "0_2" in {nid.partition("-")[0] for nid in engine.execution(exid).view.nodes}
            exid = await engine.alaunch("cmap [ 1 ]\n  def x \\ stall _")
            await flows.aadd_iterations(exid, "0", [2])

    asyncio.run(go())
