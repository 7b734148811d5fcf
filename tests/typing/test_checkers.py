"""mypy and pyright agree on the types that users see: refs, answers, states and checks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
READ = sorted(HERE.glob("*_types.py"))


def test_mypy_knows_the_types(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", f"--cache-dir={tmp_path}"]
    done = subprocess.run([*command, *READ], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


def test_pyright_knows_the_types(tmp_path: Path) -> None:
    if find_spec("pyright") is None or shutil.which("node") is None:
        if "CI" in os.environ:
            pytest.fail("CI needs pyright (in the extra `dev`) and node, which runs it")
        pytest.skip("needs pyright (in the extra `dev`) and node, which runs it")
    for path in READ:
        shutil.copy(path, tmp_path)
    settings = {
        "extraPaths": [str(ROOT)],
        "typeCheckingMode": "standard",
        "reportUnnecessaryTypeIgnoreComment": "error",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "-p", str(tmp_path), "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
