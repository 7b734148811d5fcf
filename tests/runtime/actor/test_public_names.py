"""The public names of the package."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import actorflow as af


def test_dir_shows_the_public_names_and_nothing_else() -> None:
    assert dir(af) == sorted(af.__all__)
    assert len(set(af.__all__)) == len(af.__all__)


def test_type_checkers_and_programs_find_each_name_in_the_same_module() -> None:
    tree = ast.parse(Path(af.__file__).read_text(encoding="utf-8"))
    imports = [each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]
    seen = {name.name: each.module for each in imports for name in each.names}
    homes = {name: seen.get(name) for name in af.__all__ if name != "__version__"}
    assert homes == af._HOMES


@pytest.mark.parametrize("name", af.__all__)
def test_each_public_name_resolves(name: str) -> None:
    assert getattr(af, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Enginee'"):
        af.Enginee  # noqa: B018
