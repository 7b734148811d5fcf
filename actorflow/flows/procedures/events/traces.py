"""``trace`` and ``echo``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorflow.flows.execution.procedure import Procedure
from actorflow.flows.procedures.registry import procedure
from actorflow.flows.values.values import to_json

if TYPE_CHECKING:
    from actorflow.flows.execution.node import Message


class _Aside(Procedure):
    """Evaluates its arguments and leaves ret unchanged."""

    __slots__ = ()

    def receive_last(self) -> list[Message]:
        """Reply with the ret on entry."""
        self.set_ret(self.ret0)
        return self.reply()


@procedure("trace")
class TraceProcedure(_Aside):
    """Store each argument, and the result of each child, as a text with the execution."""

    __slots__ = ()

    def receive_att(self, index: int) -> list[Message]:
        """Store an argument; attributes with a key are not arguments."""
        if len(self.tree[1][index][1]) == 1:
            self._keep()
        return super().receive_att(index)

    def receive_non_att(self, index: int) -> list[Message]:
        """Store the result of a child."""
        self._keep()
        return super().receive_non_att(index)

    def _keep(self) -> None:
        ret = self.payload.get("ret")
        self.run.trace(self.node.nid, ret if type(ret) is str else to_json(ret))


@procedure("echo")
class Echo(_Aside):
    """Write to the log of the engine."""

    __slots__ = ()

    def receive_last_att(self, index: int) -> list[Message]:
        """Log the last argument."""
        ret = self.payload.get("ret")
        text = ret if type(ret) is str else to_json(ret)
        self.run.out.echoes.append({"nid": self.node.nid, "text": text})
        return super().receive_last_att(index)
