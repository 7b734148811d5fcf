"""OTP's supervisor_SUITE on running supervisors: significant children and auto_shutdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.runtime.supervision.actions import Why
from tests.runtime.supervision.kit import BOOM, STATIC, names, ref

if TYPE_CHECKING:
    from tests.runtime.supervision.kit import Stage

MODES = ["any_significant", "all_significant"]
WAYS = ["terminate", "kill", "abnormal", "normal"]
modes = pytest.mark.parametrize("mode", MODES)
ways = pytest.mark.parametrize("way", WAYS)


def end(stage: Stage, supervisor: af.SupervisorRef, name: str, way: str) -> None:
    reasons = {"kill": af.Killed(), "abnormal": af.Crash(BOOM), "normal": af.Normal()}
    if way == "terminate":
        supervisor.terminate_child(name)
    else:
        stage.ends(ref(supervisor, name), reasons[way])


@pytest.mark.parametrize("mode", ["never", *MODES])
@pytest.mark.parametrize("restart", ["temporary", "transient"])
@ways
def test_nonsignificant_temporary_transient_s42(
    stage: Stage, mode: str, restart: Any, way: str
) -> None:
    supervisor = stage.up(stage.child("a", restart=restart), auto_shutdown=mode)
    end(stage, supervisor, "a", way)
    assert supervisor.is_alive()


@ways
def test_significant_temporary_any_s42(stage: Stage, way: str) -> None:
    supervisor = stage.up(
        stage.child("a", restart="temporary", significant=True), stage.child("b"),
        auto_shutdown="any_significant",
    )  # fmt: skip
    end(stage, supervisor, "a", way)
    assert supervisor.is_alive() is (way == "terminate")  # S44
    if way != "terminate":
        assert supervisor.exit_reason == af.Shutdown()
        assert supervisor.actor.why is Why.AUTO_SHUTDOWN
        assert stage.take().endswith("-b1")


@ways
def test_significant_transient_any_s42(stage: Stage, way: str) -> None:
    supervisor = stage.up(
        stage.child("a", restart="transient", significant=True), auto_shutdown="any_significant"
    )
    end(stage, supervisor, "a", way)
    assert supervisor.is_alive() is (way != "normal")
    if way in {"kill", "abnormal"}:
        assert names(supervisor) == "a2"


@pytest.mark.parametrize("restart", ["temporary", "transient"])
def test_significant_all_only_the_last_s43(stage: Stage, restart: Any) -> None:
    kinds: dict[str, Any] = {"restart": restart, "significant": True}
    supervisor = stage.up(
        stage.child("a", **kinds), stage.child("b", **kinds), stage.child("c"),
        auto_shutdown="all_significant",
    )  # fmt: skip
    end(stage, supervisor, "a", "normal")
    assert supervisor.is_alive()
    end(stage, supervisor, "b", "normal")
    assert supervisor.exit_reason == af.Shutdown()


def test_restarting_significant_child_still_counts_s43(stage: Stage) -> None:
    kinds: dict[str, Any] = {"restart": "transient", "significant": True}
    supervisor = stage.up(
        stage.child("a", **kinds), stage.child("b", **kinds),
        auto_shutdown="all_significant", backoff=af.Backoff(initial=1.0),
    )  # fmt: skip
    end(stage, supervisor, "a", "abnormal")
    end(stage, supervisor, "b", "normal")
    assert supervisor.is_alive()
    stage.run(1.0)
    end(stage, supervisor, "a", "normal")
    assert not supervisor.is_alive()


@modes
def test_significant_simple_s6(stage: Stage, mode: str) -> None:
    with pytest.raises(af.BadFlags, match="dynamic"):
        stage.tree(strategy="dynamic", auto_shutdown=mode)


@modes
@pytest.mark.parametrize("strategy", STATIC)
@pytest.mark.parametrize("restart", ["temporary", "transient"])
def test_significant_bystander_s44(stage: Stage, mode: str, strategy: str, restart: Any) -> None:
    supervisor = stage.up(
        stage.child("a"), stage.child("b", restart=restart, significant=True),
        strategy=strategy, auto_shutdown=mode,
    )  # fmt: skip
    stage.crash(supervisor, "a")
    assert supervisor.is_alive()


@pytest.mark.parametrize("significant", [True, False])
def test_significant_escalation_s45(stage: Stage, significant: Any) -> None:
    inner = stage.tree(
        stage.child("a", restart="transient", significant=True), auto_shutdown="any_significant"
    )
    supervisor = stage.up(
        af.Child("inner", inner, restart="transient", significant=significant),
        auto_shutdown="any_significant",
    )
    end(stage, ref(supervisor, "inner"), "a", "normal")
    assert supervisor.is_alive() is not significant


def test_permanent_supervisor_that_shuts_down_is_started_again_s45(stage: Stage) -> None:
    inner = stage.tree(
        stage.child("a", restart="transient", significant=True), auto_shutdown="any_significant"
    )
    supervisor = stage.up(af.Child("inner", inner))
    end(stage, ref(supervisor, "inner"), "a", "normal")
    assert names(ref(supervisor, "inner")) == "a2"


def test_significant_worker_s42(stage: Stage) -> None:
    job = stage.worker("w", lambda batch, state: af.Stop())
    supervisor = stage.up(
        stage.child("a"), af.Child("w", job, restart="transient", significant=True),
        auto_shutdown="any_significant",
    )  # fmt: skip
    supervisor.worker("w").push(1)
    stage.run()
    assert supervisor.exit_reason == af.Shutdown()
    assert stage.take() == "-a1"
