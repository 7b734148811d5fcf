"""Which code has run an instance is recorded, and shown."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import actorflow as af
from actorflow.cli import application
from actorflow.engine.errors import ExecutionFailed
from actorflow.workflows.errors import InvalidWorkflow
from actorflow.workflows.versions import UNKNOWN, code_version
from tests.workflows.service.orders import PATIENCE, wait_for_event

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SOURCE = '''
import actorflow as af


class Base(af.Workflow[str], abstract=True):
    def after(self) -> str:
        return "one"


class Order(Base):
    """An order."""

    def handle(self) -> str:
        self.wait("go")  # for a long time
        return self.after()
'''


def loaded(tmp_path: Path, text: str, name: str = "deployed") -> Any:
    """Return the class of a module as it is deployed now."""
    path = tmp_path / f"{name}.py"
    path.write_text(text)
    sys.modules.pop(name, None)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # Two versions may be written within one tick of the file system's clock.
    exec(compile(text, path, "exec"), module.__dict__)  # noqa: S102 - ours
    sys.modules["linecache"].checkcache(str(path)) if "linecache" in sys.modules else None
    return module.Order


def test_a_hash_of_the_source_is_the_version(tmp_path: Path) -> None:
    first = code_version(loaded(tmp_path, SOURCE, "first"))
    assert len(first) == 12
    assert first == code_version(loaded(tmp_path, SOURCE, "second")), "wherever it is"
    told = SOURCE.replace("for long", "forever").replace("An order.", "Another text.")
    assert code_version(loaded(tmp_path, told.replace("\n\n\n", "\n\n\n\n"), "third")) == first
    for changed in (SOURCE.replace('"go"', '"gone"'), SOURCE.replace('"one"', '"two"')):
        other = code_version(loaded(tmp_path, changed, f"m{abs(hash(changed))}"))
        assert other != first


def test_a_version_of_its_own() -> None:
    class Order(af.Workflow[None]):
        version = "2026-11"

        def handle(self) -> None: ...

    class Special(Order): ...

    assert code_version(Order) == code_version(Special) == "2026-11"


def test_a_class_without_a_source_has_an_unknown_version() -> None:
    made = type("Made", (af.Workflow,), {"handle": lambda _: None})
    assert code_version(made) == UNKNOWN


def test_a_version_that_is_no_text_is_refused_at_the_start(engine: af.Engine) -> None:
    class Order(af.Workflow[None]):
        version = 2

        def handle(self) -> None: ...

    with pytest.raises(InvalidWorkflow, match="version = '2'"):
        engine.start(Order())


def test_each_version_that_runs_an_instance_is_recorded(
    reopen: Callable[..., af.Engine], tmp_path: Path
) -> None:
    def version(number: str) -> Any:
        class Order(af.Workflow[str]):
            def handle(self) -> str:
                self.wait("go")
                self.wait("end")
                return number

        Order.version = number  # type: ignore[attr-defined]
        return Order

    engine = reopen()
    one, two = version("1"), version("2")
    order = engine.start(one(), id="o-1")
    wait_for_event(order)
    assert [(each.version, each.index) for each in order.query().versions] == [("1", 0)]
    engine = reopen()
    order = engine.workflows.get(one, "o-1")
    order.send("go")
    wait_for_event(order)
    assert order.query().version == "1"
    engine = reopen()
    order = engine.workflows.get(two, "o-1")
    order.send("end")
    assert order.result(PATIENCE) == "2"
    view = order.query()
    assert [each.version for each in view.versions] == ["1", "2"]
    assert view.versions[1].index > 0
    assert view.plain()["version"] == "2"
    noted = [each["version"] for each in order.history() if each["type"] == "version"]
    assert noted == ["1", "2"]
    engine.close()
    shown = CliRunner().invoke(application(), ["show", str(tmp_path / "again.db"), "o-1"])
    assert '"type": "version"' in shown.output


def test_a_class_can_be_renamed_and_goes_on_with_its_instances(
    opens: Callable[..., af.Engine], tmp_path: Path
) -> None:
    @af.workflow(name="Renamed order")
    class Order(af.Workflow[str]):
        def handle(self) -> str:
            self.wait("go")
            return "before"

    with opens(tmp_path / "store.db", durability="off") as engine:
        engine.start(Order(), id="o")
        assert engine.execution("o").kind == "workflow:Renamed order"

    @af.workflow(name="Renamed order")
    class CustomerOrder(af.Workflow[str]):
        def handle(self) -> str:
            self.wait("go")
            return "after"

    class Special(CustomerOrder):
        """Has its own name."""

    with opens(tmp_path / "store.db", durability="off") as engine:
        order = engine.workflows.get(CustomerOrder, "o")
        order.send("go")
        assert order.result(PATIENCE) == "after"
        assert engine.workflows.check("o") is None
        engine.start(Special(), id="s")
        assert engine.execution("s").kind == "workflow:Special"


@pytest.mark.parametrize("name", ["", "a\nb", None])
def test_a_name_that_cannot_be_stored_is_refused(name: Any) -> None:
    with pytest.raises(InvalidWorkflow, match="is not a name"):
        af.workflow(name=name)
    with pytest.raises(InvalidWorkflow, match="is not a workflow class"):
        af.workflow(name="Order")(int)  # type: ignore[type-var]


@af.task
def number(n: int) -> int:
    return n


def counted(*, step: int = 1, value: int = 1, published: tuple[int, ...] = (1,)) -> Any:
    """Return a workflow that waits after a step, with something changed."""

    class Counted(af.Workflow[int]):
        def handle(self) -> int:
            self.execute(number(step))
            self.value = value
            for each in published:
                self.publish(each)
            self.wait("go")
            return self.value

    Counted.__qualname__ = "Counted"
    return Counted


@pytest.mark.parametrize(
    ("changed", "result"),
    [
        ({}, 1),
        ({"value": 2}, 1),  # the recorded value counts
        ({"published": ()}, 1),
        ({"published": (1, 2)}, 1),
        ({"step": 2}, None),
        ({"published": (2,)}, None),
    ],
)
def test_run_time_compares_steps_and_published_values_but_no_properties(
    changed: dict[str, Any], result: int | None, tmp_path: Path
) -> None:
    with af.Engine(tmp_path / "store.db") as engine:
        order = engine.start(counted()(), id="c")
        wait_for_event(order)
        history = order.export()
    new = counted(**changed)
    with af.Engine(tmp_path / "store.db") as engine:
        engine.workflows.register(new)
        differs = engine.workflows.check(history, new) is not None
        assert differs == ("value" in changed or result is None)
        order = engine.workflows.get(new, "c")
        order.send("go")
        if result is not None:
            assert order.result(PATIENCE) == result
        else:
            with pytest.raises(ExecutionFailed, match="WorkflowModified"):
                order.result(PATIENCE)
