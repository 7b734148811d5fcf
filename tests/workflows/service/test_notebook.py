"""Cells of a notebook: code that is executed again in the same module, while the engine is open."""

from __future__ import annotations

import linecache
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

import actorflow as af
from actorflow.engine.errors import ExecutionFailed
from actorflow.runtime.errors import BadOption
from tests.workflows.service.orders import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

TASK = """
@af.task{options}
def price(item: str) -> int:
    return {price}
"""
WORKFLOW = """
class Order(af.Workflow[str]):
    def __init__(self, item: str) -> None:
        self.item = item

    def handle(self) -> str:
        paid = self.execute(price(self.item))
        return f"{greeting} {{paid}}"
"""


class Notebook:
    def __init__(self) -> None:
        self.module = ModuleType("notebook_of_test")
        self.module.__dict__["af"] = af
        self.cells = 0

    def run(self, cell: str, **values: Any) -> None:
        """Execute a cell as a notebook does: each time under a file name of its own."""
        self.cells += 1
        source, name = cell.format(**values), f"<cell {self.cells}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        exec(compile(source, name, "exec"), self.module.__dict__)  # noqa: S102 - a cell

    def order(self, engine: af.Engine) -> str:
        result: str = engine.start(self.module.Order("tea")).result(PATIENCE)
        return result


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    notebook = Notebook()
    sys.modules["notebook_of_test"] = notebook.module
    notebook.run(TASK, options="", price=1)
    notebook.run(WORKFLOW, greeting="paid")
    yield notebook
    del sys.modules["notebook_of_test"]


def test_a_workflow_class_that_is_defined_again_replaces_the_old_one(
    engine: af.Engine, notebook: Notebook
) -> None:
    assert notebook.order(engine) == "paid 1"
    notebook.run(WORKFLOW, greeting="charged")
    assert notebook.order(engine) == "charged 1"
    notebook.run(WORKFLOW, greeting="billed")
    engine.workflows.register(notebook.module.Order)
    assert notebook.order(engine) == "billed 1"


def test_a_task_that_is_defined_again_is_used_by_the_workflow_that_names_it(
    engine: af.Engine, notebook: Notebook
) -> None:
    assert notebook.order(engine) == "paid 1"
    notebook.run(TASK, options="", price=2)
    assert notebook.order(engine) == "paid 2"
    notebook.run(TASK, options="(retries=3, backoff=0.0)", price="1 / 0")
    with pytest.raises(ExecutionFailed, match="ZeroDivisionError"):
        notebook.order(engine)
    notebook.run(TASK, options="", price=4)
    assert notebook.order(engine) == "paid 4"


def test_both_cells_run_again_and_again(engine: af.Engine, notebook: Notebook) -> None:
    for price in range(5):
        notebook.run(TASK, options="", price=price)
        notebook.run(WORKFLOW, greeting="paid")
        assert notebook.order(engine) == f"paid {price}"


def test_an_instance_that_waits_goes_on_with_the_class_of_the_last_cell(
    engine: af.Engine, notebook: Notebook
) -> None:
    cell = """
class Waits(af.Workflow[str]):
    def handle(self) -> str:
        self.wait("go")
        return "{result}"
"""
    notebook.run(cell, result="old")
    waiting = engine.start(notebook.module.Waits())
    notebook.run(cell, result="new")
    engine.workflows.register(notebook.module.Waits)
    waiting.send("go")
    assert waiting.result(PATIENCE) == "new"


def test_options_that_cannot_change_while_the_engine_is_open_are_refused(
    engine: af.Engine, notebook: Notebook
) -> None:
    notebook.order(engine)
    notebook.run(TASK, options="(concurrency=2)", price=2)
    with pytest.raises(BadOption, match=r"'price' was defined again with .*'concurrency': 2"):
        notebook.order(engine)
    notebook.run(TASK.replace("def", "async def"), options="", price=2)
    with pytest.raises(BadOption, match=r"'price' was defined again with async=True"):
        notebook.order(engine)
