"""Workflows by the clock: each occurrence once, by its id."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import actorflow as af
from actorflow.engine import schedules
from actorflow.engine.cron import next_time
from actorflow.engine.errors import NotStorable
from actorflow.engine.kind import Context, Message, TimerFired
from actorflow.engine.kinds.cron import CronKind
from actorflow.testing.kinds import check_kind
from tests.engine.kinds import flush, rows, until
from tests.workflows.service.orders import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.schedules import Schedule
    from actorflow.testing import VirtualClock

MINUTE = 60.0


@af.task
def count(what: str) -> str:
    return f"{what} counted"


class Report(af.Workflow[str]):
    """The workflow that is started each minute here."""

    def __init__(self, what: str) -> None:
        self.what = what

    def handle(self) -> str:
        return self.execute(count(self.what))


def started(engine: af.Engine) -> list[str]:
    return [each.id for each in engine.executions(tags={"schedule": "report"})]


def is_set(engine: af.Engine) -> bool:
    return bool(rows(engine, "timers"))


def advance(engine: af.Engine, clock: VirtualClock, to: float) -> None:
    """Move time on once the schedule has set its timer."""
    until(engine, lambda: is_set(engine))
    step(engine, clock, to - clock.now())


def step(engine: af.Engine, clock: VirtualClock, seconds: float) -> None:
    """Move time on, once all that was committed has had its effect: timers are armed then."""
    flush(engine)
    clock.advance(seconds)


def test_a_workflow_is_started_at_each_occurrence(engine: af.Engine, clock: VirtualClock) -> None:
    schedule = engine.schedule("report", "* * * * *", Report("stock"))
    assert schedule.next == 1_020.0
    for moment in (1_020.0, 1_080.0):
        advance(engine, clock, moment)
        until(engine, lambda: schedule.next == clock.now() + MINUTE)
    until(engine, lambda: len(started(engine)) == 2)
    assert started(engine) == ["report@1970-01-01T00:17:00Z", "report@1970-01-01T00:18:00Z"]
    for each in started(engine):
        assert engine.result(each, PATIENCE) == "stock counted"


def test_an_occurrence_that_went_by_is_made_up_for_once(
    reopen: Callable[..., af.Engine], clock: VirtualClock
) -> None:
    engine = reopen()
    engine.schedule("report", "* * * * *", Report("stock"))
    engine.close()
    clock.advance(5 * MINUTE)
    engine = reopen()
    engine.schedule("report", "* * * * *", Report("stock"))  # as programs do when they begin
    step(engine, clock, 0.0)
    until(engine, lambda: started(engine) == ["report@1970-01-01T00:17:00Z"])
    until(engine, lambda: engine.schedules.get("report").next == 1_320.0)


def test_pausing_and_resuming(reopen: Callable[..., af.Engine], clock: VirtualClock) -> None:
    engine = reopen()
    schedule = engine.schedule("report", "* * * * *", Report("stock"))
    schedule.pause()
    assert (schedule.paused, schedule.next) == (True, None)
    engine = reopen()
    schedule = engine.schedule("report", "* * * * *", Report("stock"))
    assert schedule.paused, "setting it again does not resume it"
    clock.advance(5 * MINUTE)
    schedule.resume()
    schedule.resume()
    assert (schedule.paused, schedule.next) == (False, 1_320.0)
    assert started(engine) == [], "missed times are left out"
    step(engine, clock, MINUTE)
    until(engine, lambda: started(engine) == ["report@1970-01-01T00:22:00Z"])


class Slow(af.Workflow[str]):
    """Ends on request; says whether it was cancelled."""

    def handle(self) -> str:
        """Wait."""
        try:
            self.wait("end")
        finally:
            self.wait(seconds=0)
        return "ended"


def minutes(engine: af.Engine, clock: VirtualClock, schedule: Schedule, count_: int) -> None:
    """Let some occurrences come due, one after the other."""
    for _ in range(count_):
        advance(engine, clock, schedule.next or 0.0)
        until(engine, lambda: (schedule.next or 0.0) > clock.now())
        flush(engine)


def active(engine: af.Engine) -> list[str]:
    return [each.id[-9:-4] for each in engine.executions(kind="workflow:Slow", status="active")]


def end(engine: af.Engine, minute: str) -> None:
    execution = f"slow@1970-01-01T{minute}:00Z"
    engine.send(execution, {"event": "end"})
    assert engine.result(execution, PATIENCE) == "ended"


def test_occurrences_are_left_out_while_the_last_one_runs(
    engine: af.Engine, clock: VirtualClock
) -> None:
    schedule = engine.schedule("slow", "* * * * *", Slow(), overlap="skip")
    minutes(engine, clock, schedule, 3)
    until(engine, lambda: active(engine) == ["00:17"])
    assert schedule.backfill(0.0, 60.0) == 2  # beside the clock
    until(engine, lambda: active(engine) == ["00:00", "00:01", "00:17"])
    end(engine, "00:17")
    until(engine, lambda: schedule.running is None)
    minutes(engine, clock, schedule, 1)
    until(engine, lambda: active(engine) == ["00:00", "00:01", "00:20"])


def test_occurrences_wait_for_their_turn(engine: af.Engine, clock: VirtualClock) -> None:
    schedule = engine.schedule("slow", "* * * * *", Slow(), overlap="queue")
    minutes(engine, clock, schedule, 3)
    until(engine, lambda: active(engine) == ["00:17"])
    schedule.pause()
    end(engine, "00:17")
    until(engine, lambda: schedule.running is None)
    flush(engine)
    assert active(engine) == []
    schedule.resume()
    until(engine, lambda: active(engine) == ["00:18"])
    schedule.backfill(0.0, clock.now() + 600)  # later ones are the clock's
    end(engine, "00:18")
    until(engine, lambda: "00:19" in active(engine))
    end(engine, "00:19")
    assert rows(engine, "dead") == []


def test_the_last_occurrence_is_cancelled_and_cleans_up_before_the_next_one(
    engine: af.Engine, clock: VirtualClock
) -> None:
    schedule = engine.schedule("slow", "* * * * *", Slow(), overlap="cancel")
    for minute in ("00:17", "00:18", "00:19"):
        minutes(engine, clock, schedule, 1)
        until(engine, lambda minute=minute: active(engine) == [minute])  # type: ignore[misc]
    for minute in ("17", "18"):
        with pytest.raises(af.Cancelled):
            engine.result(f"slow@1970-01-01T00:{minute}:00Z", PATIENCE)
    assert rows(engine, "dead") == []


def test_a_schedule_that_is_set_again_keeps_the_turns(
    reopen: Callable[..., af.Engine], clock: VirtualClock
) -> None:
    engine = reopen()
    schedule = engine.schedule("slow", "* * * * *", Slow(), overlap="queue")
    minutes(engine, clock, schedule, 2)
    until(engine, lambda: active(engine) == ["00:17"])
    engine = reopen()
    schedule = engine.schedule("slow", "* * * * *", Slow(), overlap="queue")
    assert schedule.running == "slow@1970-01-01T00:17:00Z"
    end(engine, "00:17")
    until(engine, lambda: active(engine) == ["00:18"])
    schedule.delete()
    with pytest.raises(af.BadOption, match="overlap='wait'"):
        engine.schedule("slow", "* * * * *", Slow(), overlap="wait")


def test_trigger_now(engine: af.Engine) -> None:
    schedule = engine.schedule("report", "0 0 1 1 *", Report("stock"))
    schedule.pause()
    first, second = schedule.trigger(), schedule.trigger(id="by hand")
    assert schedule.trigger(id="by hand") == second == "report@by hand"
    assert engine.result(first, PATIENCE) == engine.result(second, PATIENCE) == "stock counted"
    assert sorted(started(engine)) == sorted([first, second])
    assert first.startswith("report@")


def test_backfill_starts_each_past_occurrence_once(
    engine: af.Engine, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = engine.schedule("report", "* * * * *", Report("stock"))
    advance(engine, clock, 1_020.0)
    until(engine, lambda: len(started(engine)) == 1)
    assert schedule.backfill(840.0, 1_020.0) == 4
    assert schedule.backfill(840, 1_020) == 4  # whole numbers, as int(time.time()) returns
    until(engine, lambda: len(started(engine)) == 4)
    assert started(engine)[0] == "report@1970-01-01T00:14:00Z"
    schedule.backfill(60_000.0, 60_000.0 + 250 * MINUTE)
    until(engine, lambda: len(started(engine)) == 255)
    assert rows(engine, "dead") == []
    monkeypatch.setattr(schedules, "MOST", 1_000)
    wrong: Any = (
        (2.0, 1.0),
        (0.0, float("inf")),
        (0.0, 1e300),
        (1e12, 1e12),
        (0.0, 1e9),
        ("0", 1.0),
        (None, 1.0),
    )
    for begin, end in wrong:
        with pytest.raises(af.BadOption, match="backfill"):
            schedule.backfill(begin, end)


def test_listing_and_deleting(engine: af.Engine, clock: VirtualClock) -> None:
    engine.schedule("report", "* * * * *", Report("stock"))
    engine.schedule("audit", "0 0 * * *", Report("books"), zone="Europe/Berlin")
    found = {each.name: (each.cron, each.zone, each.kind) for each in engine.schedules}
    assert found == {
        "report": ("* * * * *", "UTC", "workflow:Report"),
        "audit": ("0 0 * * *", "Europe/Berlin", "workflow:Report"),
    }
    schedule = engine.schedules.get("report")
    assert schedule.delete()
    assert not schedule.delete()
    assert [each.name for each in engine.schedules] == ["audit"]
    with pytest.raises(LookupError, match=r"no schedule 'report'.*'audit'"):
        engine.schedules.get("report")
    clock.advance(5 * MINUTE)
    assert started(engine) == []
    schedule = engine.schedule("report", "* * * * *", Report("stock"))
    assert (schedule.paused, schedule.next) == (False, 1_320.0), "it begins anew"


def test_another_cron_line_sets_it_anew(engine: af.Engine) -> None:
    engine.schedule("report", "* * * * *", Report("stock"))
    schedule = engine.schedule("report", "*/20 * * * *", Report("books"))
    assert schedule.next == 1_200.0
    assert engine.result(schedule.trigger(), PATIENCE) == "books counted"


def test_bad_input_is_named(engine: af.Engine) -> None:
    with pytest.raises(af.BadOption, match="write for example"):
        engine.schedule("report", "sometimes", Report("stock"))
    with pytest.raises(af.BadOption, match="no time zone"):
        engine.schedule("report", "* * * * *", Report("stock"), zone="Moon/Base")
    with pytest.raises(TypeError, match="is not a workflow"):
        engine.schedule("report", "* * * * *", 42)  # type: ignore[arg-type]
    with pytest.raises(NotStorable):
        engine.schedule("report", "* * * * *", Report(object()))  # type: ignore[arg-type]
    assert list(engine.schedules) == []


def test_a_name_leaves_room_for_the_ids_of_what_is_started(engine: af.Engine) -> None:
    with pytest.raises(ValueError, match="must have 1 to 967 characters, not 968"):
        engine.schedule("x" * 968, "* * * * *", Report("stock"))
    assert list(engine.schedules) == []
    longest = engine.schedule("x" * 967, "* * * * *", Report("stock"))
    assert engine.result(longest.trigger(), PATIENCE) == "stock counted"
    with pytest.raises(ValueError, match="must have 1 to 1000 characters, not 1001"):
        longest.trigger(id="y" * 33)
    assert rows(engine, "dead") == []


def test_a_schedule_of_a_durable_worker_has_the_same_verbs(
    engine: af.Engine, clock: VirtualClock
) -> None:
    worker = engine.worker("w", lambda batch, state: [*state, *batch], state=[])
    schedule = engine.every("ticks", "* * * * *", worker, "tick")
    schedule.trigger()
    until(engine, lambda: worker.state() == ["tick"])
    assert schedule.backfill(0.0, MINUTE) == 2
    until(engine, lambda: worker.state() == ["tick"] * 3)
    schedule.pause()
    clock.advance(5 * MINUTE)
    assert schedule.delete()


def test_the_asyncio_twins(engine: af.Engine) -> None:
    async def main() -> str:
        schedule = await engine.aschedule("report", "* * * * *", Report("stock"))
        await schedule.apause()
        await schedule.aresume()
        assert await schedule.abackfill(0.0, MINUTE) == 2
        triggered = await schedule.atrigger()
        assert await schedule.adelete()
        return str(await engine.aresult(triggered, PATIENCE))

    assert asyncio.run(main()) == "stock counted"


# The kind by itself.

PLAN = {"cron": "*/5 * * * *", "zone": "UTC", "kind": "k", "body": 1, "start": True}


def test_the_engine_can_rely_on_it() -> None:
    check_kind(
        CronKind,
        messages=st.sampled_from(
            [
                {"set": PLAN},
                {"set": PLAN, "anew": True},
                {"set": {**PLAN, "cron": "0 * * * *"}},
                {"do": "pause"},
                {"do": "resume"},
                {"do": "trigger", "id": "x"},
                {"do": "backfill", "begin": 0.0, "end": 1e6},
            ]
        ),
        max_examples=100,
    )


@given(
    st.lists(
        st.sampled_from(["fire", "late", "pause", "resume", "set", "backfill", "restart"]),
        max_size=30,
    )
)
def test_no_occurrence_is_lost_and_none_has_two_ids(steps: list[str]) -> None:
    kind = CronKind()
    now = 0.0
    state: Any = None
    due: float | None = None

    def run(*batch: Any) -> list[str]:
        nonlocal state, due
        outcome = kind.run(Context("cron:c", now), state, batch)
        state = outcome.state
        if outcome.cancelled_timers:
            due = None
        for timer in outcome.timers:
            due = timer.at
        return [each.to for each in outcome.messages if each.to != "cron:c"]

    seen: list[str] = []
    expected: set[str] = set()
    run(Message(1, now, {"set": PLAN}))
    for step in steps:
        if step in ("fire", "late") and due is not None:
            moment = due
            now = moment if step == "fire" else moment + 1_000.0
            seen += run(TimerFired(2, now, "tick", moment))
            expected.add(kind.occurrence("c", moment))
            assert due == next_time(PLAN["cron"], now)  # type: ignore[arg-type]
        elif step in ("pause", "resume"):
            run(Message(3, now, {"do": step}))
        elif step == "set":
            before = due
            run(Message(4, now, {"set": PLAN}))
            assert due == before
        elif step == "backfill":
            seen += run(Message(5, now, {"do": "backfill", "begin": now - 600, "end": now}))
        else:
            state = kind.decode(kind.encode(state))
    assert expected <= set(seen)
