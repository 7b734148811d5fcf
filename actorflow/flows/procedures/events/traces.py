"""Leaving traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.flows.execution.procedure import Procedure
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values.values import to_json

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message


class _Aside(Procedure):
    """Something that says what it is given and leaves ret alone."""

    __slots__ = ()

    def receive_last(self) -> list[Message]:
        """Reply with the ret of the entry."""
        self.set_ret(self.ret0)
        return self.reply()


@procedure("trace")
class Trace(_Aside):
    """Keep each argument, and what each child gives, as a text with the execution."""

    __slots__ = ()

    def receive_att(self, index: int) -> list[Message]:
        """Keep an argument; attributes with a key are none."""
        if len(self.tree[1][index][1]) == 1:
            self._keep()
        return super().receive_att(index)

    def receive_non_att(self, index: int) -> list[Message]:
        """Keep what a child gives."""
        self._keep()
        return super().receive_non_att(index)

    def _keep(self) -> None:
        ret = self.payload.get("ret")
        self.run.trace(self.node.nid, ret if type(ret) is str else to_json(ret))


@procedure("echo")
class Echo(_Aside):
    """Say it to the log of the engine."""

    __slots__ = ()

    def receive_last_att(self, index: int) -> list[Message]:
        """Log the last argument."""
        ret = self.payload.get("ret")
        text = ret if type(ret) is str else to_json(ret)
        self.run.out.echoes.append({"nid": self.node.nid, "text": text})
        return super().receive_last_att(index)
