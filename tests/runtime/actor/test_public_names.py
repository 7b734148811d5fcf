"""The public names of the package, and the check that `behaviours` is actorflow's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import actorflow as af

ROOT = Path(af.__file__).parent.parent


def test_dir_shows_the_public_names_and_nothing_else() -> None:
    assert dir(af) == sorted(af.__all__)
    assert len(set(af.__all__)) == len(af.__all__)


@pytest.mark.parametrize("name", af.__all__)
def test_each_public_name_resolves(name: str) -> None:
    assert getattr(af, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Enginee'"):
        af.Enginee  # noqa: B018


def imported(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in that folder, which comes first on its path as for any script there."""
    code = arguments or ("-c", "import sys; sys.path.insert(0, ''); import actorflow")
    return subprocess.run(
        [sys.executable, *code],
        cwd=folder, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_local_behaviours_file_is_named_in_the_error(tmp_path: Path) -> None:
    shadow = tmp_path / "behaviours.py"
    shadow.write_text("raise SystemExit('its code must not run')\n")
    outcome = imported(tmp_path)
    assert outcome.returncode == 1
    assert "ImportError: actorflow needs its own package 'behaviours'" in outcome.stderr
    assert str(shadow) in outcome.stderr
    assert str(ROOT / "behaviours" / "__init__.py") in outcome.stderr
    assert "Rename" in outcome.stderr
    assert "its code must not run" not in outcome.stderr


def test_a_local_folder_of_that_name_is_named_too(tmp_path: Path) -> None:
    (tmp_path / "behaviours").mkdir()
    (tmp_path / "behaviours" / "__init__.py").write_text("")
    outcome = imported(tmp_path)
    assert outcome.returncode == 1
    assert str(tmp_path / "behaviours" / "__init__.py") in outcome.stderr


def test_a_script_of_that_name_is_told_to_take_another(tmp_path: Path) -> None:
    script = tmp_path / "behaviours.py"
    script.write_text("import actorflow as af\naf.spawn(print)\n")
    outcome = imported(tmp_path, str(script))
    assert outcome.returncode == 1
    assert "Rename" in outcome.stderr
    assert str(script) in outcome.stderr


def test_one_that_was_imported_before_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "behaviours.py").write_text("")
    code = "import sys; sys.path.insert(0, ''); import behaviours; sys.path.pop(0)"
    outcome = imported(tmp_path, "-c", f"{code}; import actorflow")
    assert outcome.returncode == 1
    assert str(tmp_path / "behaviours.py") in outcome.stderr


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "actorflow").symlink_to(ROOT / "actorflow")
    code = "import sys; sys.path[:] = [p for p in sys.path if 'behaviours' not in p]"
    outcome = subprocess.run(
        [sys.executable, "-S", "-c", f"{code}; import actorflow"],
        cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert outcome.returncode == 1
    assert "which is not installed" in outcome.stderr
    assert "--force-reinstall" in outcome.stderr


def test_an_overwritten_package_is_told_from_a_shadowed_one(tmp_path: Path) -> None:
    (tmp_path / "actorflow").symlink_to(ROOT / "actorflow")
    (tmp_path / "behaviours").mkdir()
    (tmp_path / "behaviours" / "__init__.py").write_text("")
    outcome = subprocess.run(
        [sys.executable, "-S", "-c", "import actorflow"],
        cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert outcome.returncode == 1
    assert "has overwritten it" in outcome.stderr


def test_our_own_is_accepted_from_anywhere(tmp_path: Path) -> None:
    assert imported(tmp_path).returncode == 0
