"""What a newcomer gets wrong about workers ends in an error, or a warning, that names the fix."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pykka
import pytest

import actorflow as af
from actorflow.runtime.worker.options import DEFAULTS

if TYPE_CHECKING:
    from tests.runtime.worker.probe import Probe


def test_push_block_in_an_event_loop_says_what_to_await() -> None:
    with af.spawn(lambda batch, state: None) as worker:

        async def main() -> None:
            with pytest.raises(af.LoopBlocked, match=r"`await worker\.apush_block\(message\)"):
                worker.push_block(1)
            with pytest.raises(af.LoopBlocked, match=r"write `await worker\.aask\(message\)"):
                worker.ask(1)
            await worker.apush_block(1)

        asyncio.run(main())
        assert worker.statistics().accepted == 1  # a refused call has sent nothing


def test_an_executor_of_concurrent_futures_is_refused_when_the_worker_is_made() -> None:
    with ThreadPoolExecutor(1) as pool:
        wrong: Any = pool
        with pytest.raises(af.BadOption, match=r"concurrent\.futures.*executor='pool'"):
            af.spawn(lambda batch, state: None, executor=wrong)
        with pytest.raises(af.BadOption, match=r"concurrent\.futures"):
            af.batched(executor=wrong)


def test_options_by_position_are_refused_with_the_right_call() -> None:
    spawn: Any = af.spawn
    with pytest.raises(af.BadOption, match=r"spawn\(job, state=0\)"):
        spawn(lambda batch, state: None, 0)


def test_a_late_answer_is_an_error_of_actorflow_and_of_pykka(pool_probe: Probe) -> None:
    worker = pool_probe.spawn()
    worker.push(0)
    for kind in (af.ActorflowError, af.PushTimeout, pykka.Timeout, TimeoutError):
        with pytest.raises(kind):
            worker.ask(1, timeout=0.0)
    with pytest.raises(af.AnswerTimeout):
        asyncio.run(worker.aask(1, timeout=0.0))


def test_a_bad_id_is_an_error_of_actorflow_and_of_python() -> None:
    with af.Engine() as engine:
        for wrong in ("", "a\nb", "x" * 1_001, 42):
            for kind in (af.ActorflowError, ValueError, TypeError):
                with pytest.raises(kind):
                    engine.execution(wrong)  # type: ignore[arg-type]


def test_asking_a_job_that_never_answers_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    with af.spawn(lambda batch, state: None) as worker:
        assert worker.ask(1) is worker.ask(2) is None
    assert caplog.text.count("return Answers(state, [one answer for each message])") == 1


def test_asking_a_job_that_answers_none_warns_nobody(caplog: pytest.LogCaptureFixture) -> None:
    with af.spawn(lambda batch, state: af.Answers(state, [None for _ in batch])) as worker:
        assert worker.ask(1) is None
    assert not caplog.records


def test_the_help_of_spawn_lists_every_option_with_its_default() -> None:
    text = af.spawn.__doc__ or ""
    for name, default in DEFAULTS.items():
        shown = {"behaviour": "`Queue`", "clock": "system time"}.get(name, str(default))
        assert f"- `{name}` ({shown!s})" in text.replace('"', "")
