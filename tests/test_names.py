"""The page of all public names: each with the first line of its docstring.

`PYTHONPATH=. python tests/test_names.py` writes the page anew.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from actorflow import ActorflowError

PAGE = Path(__file__).parents[1] / "docs" / "names.md"
MODULES = {
    "actorflow": "`import actorflow as af`",
    "actorflow.engine.errors": "`from actorflow.engine.errors import ...`",
    "actorflow.workflows.errors": "`from actorflow.workflows.errors import ...`",
    "actorflow.flows.errors": "`from actorflow.flows.errors import ...`",
    "actorflow.plans.errors": "`from actorflow.plans.errors import ...`",
    "actorflow.api.errors": "`from actorflow.api.errors import ...`",
    "actorflow.behaviours": "`from actorflow.behaviours import ...`",
    "actorflow.lab": "`from actorflow.lab import ...`",
    "actorflow.testing": "`from actorflow.testing import ...`",
    "actorflow.testing.simulation": "`from actorflow.testing.simulation import ...`",
}
GROUPS = {
    "actorflow.api": "Engines",
    "actorflow.application": "Engines",
    "actorflow.engine": "Engines",
    "actorflow.workflows": "Workflows",
    "actorflow.flows": "Flows",
    "actorflow.plans": "Plans",
    "actorflow.runtime.restarts": "Supervision",
    "actorflow.runtime.supervision": "Supervision",
    "actorflow.runtime": "Workers",
}
HEADING = """# All public names

All errors that the library raises are `af.ActorflowError`s, except `af.Cancelled`.
`python -m pydoc actorflow.Engine` says more about a name.
"""


def summary(module: str, name: str, value: Any) -> str:
    """Return the first sentence of the docstring of a name."""
    if inspect.isclass(value) or inspect.isroutine(value):
        return _sentence(inspect.getdoc(value) or "")
    for home in _homes(module):
        source = Path(str(sys.modules[home].__file__)).read_text(encoding="utf-8")
        body = ast.parse(source).body
        for node, after in pairwise(body):
            if name in _assigned(node) and isinstance(after, ast.Expr):
                return _sentence(str(ast.literal_eval(after.value)))
    return ""


def _homes(module: str) -> list[str]:
    root = module.partition(".")[0]
    return [each for each in sorted(sys.modules) if each.partition(".")[0] == root]


def _assigned(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {each.id for each in targets if isinstance(each, ast.Name)}


def _sentence(text: str) -> str:
    first = " ".join(text.split("\n\n", 1)[0].split())
    return first.replace("|", "\\|")


def group_of(module: str, value: Any) -> str:
    home = getattr(value, "__module__", None) or ""
    if module != "actorflow":
        return ""
    if inspect.isclass(value) and issubclass(value, ActorflowError):
        return "Errors"
    return next((group for start, group in GROUPS.items() if home.startswith(start)), "Workers")


def page() -> str:
    """Return the page as it has to be."""
    parts = [HEADING]
    for module, how in MODULES.items():
        found = importlib.import_module(module)
        groups: dict[str, list[str]] = {}
        for name in sorted(found.__all__, key=str.lower):
            value = getattr(found, name)
            if module.endswith(".errors") and not inspect.isclass(value):
                continue
            line = f"| `{name}` | {summary(module, name, value)} |"
            groups.setdefault(group_of(module, value), []).append(line)
        parts.append(f"## {how}\n")
        for group in sorted(groups):
            if group:
                parts.append(f"### {group}\n")
            parts.append("\n".join(["| name | what it is |", "|---|---|", *groups[group]]) + "\n")
    return "\n".join(parts)


def test_the_page_of_names_is_complete() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), __doc__


def test_every_public_name_says_what_it_is() -> None:
    assert "|  |" not in page()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
