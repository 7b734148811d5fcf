"""An engine whose opening is interrupted holds nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.engine.lifetime import OPEN

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "where",
    [
        "actorflow.application.Flows",
        "actorflow.application.Workflows",
        "actorflow.application.Plans",
        "actorflow.engine.engine.Core",
        "actorflow.engine.engine.CronKind",
    ],
)
def test_an_interrupt_while_an_engine_is_opened_leaves_the_store_to_the_next(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    before = set(OPEN)
    with monkeypatch.context() as patch:
        patch.setattr(where, interrupted)
        with pytest.raises(KeyboardInterrupt):
            af.Engine(tmp_path / "store.db", durability="off")
    assert before == OPEN
    with af.Engine(tmp_path / "store.db", durability="off") as engine:
        assert list(engine.executions()) == []
