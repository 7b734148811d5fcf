"""A supervisor that gives up says on which child, for what error, at which limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from tests.runtime.supervision.kit import BOOM, FAIL, gave_up, ref

if TYPE_CHECKING:
    from tests.runtime.supervision.kit import Stage


def test_s20_exit_reason_names_child_error_and_limit(stage: Stage) -> None:
    supervisor = stage.up(stage.child("db"), stage.child("api"), max_restarts=2, within=9.0)
    for _ in range(3):
        stage.crash(supervisor, "db")
    reason = supervisor.exit_reason
    assert reason == af.Shutdown(
        af.GaveUp(child="db", reason=af.Crash(BOOM), restarts=3, max_restarts=2, within=9.0)
    )
    assert reason is not None
    assert reason.is_clean
    assert reason.describe() == (
        "shutdown: gave up on child 'db' (crash: ValueError: boom): "
        "3 restarts within 9.0 s, limit 2"
    )


def test_s20_a_start_that_fails_again_and_again_is_the_reason(stage: Stage) -> None:
    supervisor = stage.up(stage.child("db"), max_restarts=2)
    stage.outcomes["db"].extend([FAIL, FAIL, FAIL])
    stage.crash(supervisor, "db")
    assert "OSError: refused" in gave_up(supervisor).reason.describe()


def test_s20_one_restart_is_written_in_the_singular(stage: Stage) -> None:
    supervisor = stage.up(stage.child("db"), max_restarts=0)
    stage.crash(supervisor, "db")
    assert "1 restart within 5.0 s, limit 0" in str(gave_up(supervisor))


def test_s47_escalation_names_the_whole_path(stage: Stage) -> None:
    inner = stage.tree(stage.child("db"), max_restarts=0)
    supervisor = stage.up(af.Child("inner", inner), max_restarts=0)
    stage.crash(ref(supervisor, "inner"), "db")
    outer = gave_up(supervisor)
    assert outer.child == "inner"
    assert isinstance(outer.reason, af.Shutdown)
    assert isinstance(outer.reason.detail, af.GaveUp)
    assert outer.reason.detail.child == "db"
    text = str(outer)
    assert text.index("'inner'") < text.index("'db'") < text.index("boom")


def test_s14_giving_up_is_a_clean_end_for_the_supervisor_above(stage: Stage) -> None:
    inner = stage.tree(stage.child("db"), max_restarts=0)
    supervisor = stage.up(af.Child("inner", inner, restart="transient"), max_restarts=9)
    stage.crash(ref(supervisor, "inner"), "db")
    assert supervisor.is_alive()
    assert supervisor.which_child("inner").restarts == 0
    assert "gave up on child 'db'" in supervisor.which_child("inner").last_exit.describe()  # type: ignore[union-attr]


def test_errors_of_all_descendants_name_the_culprit(stage: Stage) -> None:
    below = stage.tree(stage.worker("deep", lambda batch, state: None), stage.child("leaf"))
    supervisor = stage.up(
        stage.worker("w", lambda batch, state: None),
        af.Child("below", below),
        stage.child("db"),
        max_restarts=0,
    )
    inner = ref(supervisor, "below")
    descendants: list[Any] = [
        supervisor.worker("w"), inner.worker("deep"), ref(inner, "leaf"), inner, supervisor,
    ]  # fmt: skip
    stage.crash(supervisor, "db")
    for each in descendants:
        with pytest.raises(af.WorkerStopped, match=r"gave up on child 'db' \(crash: ValueError"):
            each.tell(1)
    with pytest.raises(af.WorkerStopped, match="gave up on child 'db'"):
        descendants[0].push(1)
    with pytest.raises(af.WorkerStopped, match="gave up on child 'db'"):
        inner.which_children()


def test_culprit_keeps_its_own_crash(stage: Stage) -> None:
    def job(_batch: Any, _state: Any) -> None:
        raise BOOM

    supervisor = stage.up(stage.worker("w", job), max_restarts=0)
    worker = supervisor.worker("w")
    worker.push(1)
    stage.run()
    with pytest.raises(af.WorkerCrashed, match="ValueError: boom") as caught:
        worker.push(2)
    assert caught.value.__cause__ is BOOM
    assert gave_up(supervisor).child == "w"


def test_s12_siblings_stopped_for_a_failed_start_name_it(stage: Stage) -> None:
    stage.outcomes["b"].append(FAIL)
    started: list[Any] = []

    def first() -> Any:
        started.append(stage.start("a"))
        return started[0]

    with pytest.raises(af.StartFailed, match="child 'b' failed to start: crash: OSError: refused"):
        stage.tree(af.Child("a", first), stage.child("b")).start()
    with pytest.raises(af.WorkerStopped, match="child 'b' failed to start"):
        started[0].tell(1)


def test_giving_up_while_a_sibling_stops_is_no_shutdown_error(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """A child that is being stopped should end with OTP's `shutdown`, which has no such detail."""
    inner = stage.tree(stage.child("db"), stage.stubborn("slow", shutdown=60.0), max_restarts=0)
    supervisor = stage.up(af.Child("inner", inner))
    nested = ref(supervisor, "inner")
    stage.crash(nested, "db")  # gives up, and waits for "slow"
    supervisor.stop(block=False)
    stage.run()
    stage.slow.run()
    stage.run()
    assert isinstance(nested.exit_reason.detail, af.GaveUp)
    assert "child did not stop as expected" not in caplog.text


class Rude(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Exits(Rude):
    def __str__(self) -> str:
        raise SystemExit

    __repr__ = __str__


class RudeId:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("error", [Rude, Exits])
@pytest.mark.parametrize("strategy", ["one_for_one", "dynamic"])
def test_m22_errors_and_ids_that_cannot_be_printed_stop_nothing(
    stage: Stage, caplog: pytest.LogCaptureFixture, strategy: Any, error: type[Rude]
) -> None:
    caplog.set_level("DEBUG")
    rude = RudeId()
    supervisor = stage.up(max_restarts=1, strategy=strategy)
    child = supervisor.start_child(af.Child(rude, stage.start, "a")).ref
    stage.ends(child, af.Crash(error()))
    (info,) = supervisor.which_children()
    assert info.restarts == 1
    assert "RudeId" in str(supervisor.tree())
    stage.ends(info.ref, af.Crash(error()))
    assert f"{error.__name__} that cannot be printed" in supervisor.exit_reason.describe()  # type: ignore[union-attr]
    assert "RudeId" in supervisor.exit_reason.describe()  # type: ignore[union-attr]
    assert "too many restarts" in caplog.text


def test_m22_start_that_raises_or_returns_something_unprintable(stage: Stage) -> None:
    supervisor = stage.up()

    def raises() -> Any:
        raise Rude

    for start in (raises, RudeId):
        with pytest.raises(af.RequestRefused, match="did not start"):
            supervisor.start_child(af.Child("a", start))
    with pytest.raises(af.RequestRefused):
        supervisor.terminate_child(RudeId())
    with pytest.raises(af.BadChild):
        af.Child(RudeId(), RudeId())  # type: ignore[arg-type]
    with pytest.raises(af.BadChild):
        af.Supervisor([af.Child(rude := RudeId(), dict), af.Child(rude, dict)])
    assert supervisor.is_alive()
