"""What type checkers know of waits in workflows. Never run: `test_checkers` has them read it."""

from __future__ import annotations

from typing import assert_type

import actorflow as af


@af.task
def charge(order: str) -> str:
    return order


class Paid:
    amount: int


class Order(af.Workflow[str]):
    def handle(self) -> str:
        assert_type(self.first(charge("o-1"), af.Wait(seconds=3)).value, str | None)
        assert_type(self.first(charge("o-1"), af.Wait("paid")).value, str | af.Event)
        assert_type(self.first(charge("o-1"), af.Wait("paid", days=1)).value, str | af.Event | None)
        assert_type(self.first(charge("o-1"), af.Wait(Paid, days=1)).value, str | Paid | None)
        assert_type(self.execute(charge("o-1"), af.Wait(Paid)), tuple[str, Paid])
        return self.first(charge("o-1"), af.Wait(seconds=3)).value  # type: ignore[return-value]


class Later(af.Workflow[None]):
    async def handle(self) -> None:
        assert_type(await af.Wait("paid"), af.Event)
        assert_type(await af.Wait("paid", hours=1), af.Event | None)
        assert_type(await af.Wait(seconds=1), None)


def start(engine: af.Engine) -> None:
    lane = af.Lane("c-7", concurrency=1, rate=(5, 30))
    assert_type(engine.start(Order(), lane=lane), af.WorkflowHandle[str])
    engine.start(Order(), lane="c-7")  # type: ignore[call-overload]
