"""`check_store(factory)`: directed cases first, then random steps against a naive model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from actorflow.engine.stores.protocol import Store

__all__ = ["check_store"]


def check_store(
    factory: Callable[[], Store],
    *,
    reopen: Callable[[Store], Store] | None = None,
    max_examples: int = 50,
) -> None:
    """Check that what `factory` makes is a store that an engine can rely on.

    Everything that `actorflow.engine.stores.protocol` says is tried. Each directed case, and each
    example of random steps, gets a new store, and closes it. Needs hypothesis; the steps are the
    same in every run. Some 20 ms for each example on a store in memory.

    Args:
        factory: makes a new, empty store at each call; several may be open at the same time. All
            partitions of it must be owned.
        reopen: opens a store again that has been closed, and returns it, for stores that outlive
            their process.
        max_examples: how many sequences of random steps to try.

    Raises:
        AssertionError: a promise is broken; the message names it.
        ModuleNotFoundError: hypothesis is not installed.

    >>> from actorflow.engine.stores.memory import MemoryStore
    >>> check_store(MemoryStore, max_examples=5)

    """
    try:
        from hypothesis import HealthCheck, Phase, settings  # noqa: PLC0415 - optional
        from hypothesis.stateful import run_state_machine_as_test  # noqa: PLC0415
    except ModuleNotFoundError as error:
        msg = "check_store needs hypothesis: pip install hypothesis"
        raise ModuleNotFoundError(msg, name="hypothesis") from error
    from actorflow.testing.stores.machine import machine_of  # noqa: PLC0415 - needs hypothesis

    _check_cases(factory, reopen)
    run_state_machine_as_test(
        machine_of(factory, reopen),
        settings=settings(
            max_examples=max_examples,
            stateful_step_count=8,
            deadline=None,
            database=None,
            derandomize=True,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
        ),
    )


def _check_cases(factory: Callable[[], Store], reopen: Callable[[Store], Store] | None) -> None:
    from actorflow.testing.stores.cases import CASES, DURABLE_CASES  # noqa: PLC0415 - see above

    for case in CASES:
        store = factory()
        try:
            case(store)
        except Exception as error:
            raise AssertionError(_broken(case.__name__, error)) from error
        finally:
            store.close()
    if reopen is None:
        return
    for durable in DURABLE_CASES:
        store = factory()
        try:
            store = durable(store, reopen)
        except Exception as error:
            raise AssertionError(_broken(durable.__name__, error)) from error
        finally:
            store.close()


def _broken(case: str, error: Exception) -> str:
    why = str(error) if isinstance(error, AssertionError) else repr(error)
    return f"the store breaks a promise: {case.replace('_', ' ')}: {why}"
