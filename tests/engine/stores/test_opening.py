"""Stores by URL: found through entry points of packages that are really installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import actorflow as af
from actorflow.cli import application
from actorflow.engine.stores.memory import MemoryStore
from actorflow.engine.stores.opening import open_store, scheme_of
from actorflow.engine.stores.sqlite.store import SqliteStore
from actorflow.runtime.errors import BadOption, install_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[3]
PATIENCE = 50.0

SHELF = '''
"""A store of somebody else: shelf://orders is a file on a shelf."""

from pathlib import Path

from actorflow.engine.stores.sqlite.store import SqliteStore

opened = []


def from_url(url, *, read_only=False, **options):
    opened.append((url, read_only, options))
    return SqliteStore(Path(__file__).parent / url.split("://")[1], read_only=read_only)


def no_store(url, **options):
    return url
'''


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Return what installs a package with entry points, as pip would."""

    def install(name: str, **schemes: str) -> Path:
        folder = tmp_path / f"{name}-site"
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (folder / f"{name}.py").write_text(SHELF, encoding="utf-8")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"{scheme} = {place}" for scheme, place in schemes.items()]
        (info / "entry_points.txt").write_text("\n".join(["[actorflow.stores]", *lines, ""]))
        monkeypatch.syspath_prepend(str(folder))
        return folder

    yield install
    for name in ("shelf", "rack"):
        sys.modules.pop(name, None)


def test_an_engine_on_the_store_of_another_package(install: Callable[..., Path]) -> None:
    folder = install("shelf", shelf="shelf:from_url")
    for total in (1, 2):
        with af.Engine("shelf://orders", durability="off", check=False) as engine:
            worker = engine.worker("sums", lambda batch, state: state + len(batch), state=0)
            worker.push_block("x")
            assert worker.state() == total
    assert (folder / "orders").exists()
    options = {"durability": "off", "check": False}
    assert sys.modules["shelf"].opened == [("shelf://orders", False, options)] * 2


def test_commands_find_it_too(install: Callable[..., Path]) -> None:
    folder = install("shelf", shelf="shelf:from_url")
    with af.Engine("shelf://orders") as engine:
        engine.worker("sums", lambda batch, state: state + len(batch), state=0).push_block("x")
        listed = command("ps", "shelf://orders")
    assert "sums  " in listed
    text = command("export", "shelf://orders")
    assert command("import", "shelf://copy", given=text) == "1 row\n"
    assert "sums  " in command("ps", "SHELF://copy")
    assert "cancelled" in command("cancel", "shelf://copy", "sums")
    command("import", "shelf://copy", given=text, code=1)  # it is not empty
    command("ps", "shelf://nowhere", code=3)
    done = subprocess.run(
        [sys.executable, "-m", "actorflow.cli", "ps", "shelf://copy"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stdout.splitlines()[1].split()[:3] == ["sums", "worker", "cancelled"]


def command(*arguments: str, code: int = 0, given: str = "") -> str:
    result = CliRunner().invoke(application(), list(arguments), input=given)
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def test_our_own_are_registered_in_the_same_way(tmp_path: Path) -> None:
    store = open_store(f"sqlite://{tmp_path}/s.db", durability="off")
    assert isinstance(store, SqliteStore)
    assert store.path == tmp_path / "s.db"
    store.close()
    assert isinstance(open_store("memory://"), MemoryStore)
    with pytest.raises(BadOption, match="names no file"):
        open_store("sqlite://")


def test_a_relative_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    open_store("sqlite://s.db").close()
    open_store("t.db").close()
    open_store(Path("u.db")).close()
    assert {path.name for path in tmp_path.glob("*.db")} == {"s.db", "t.db", "u.db"}


def test_an_unknown_scheme_is_told_with_those_that_there_are(install: Callable[..., Path]) -> None:
    install("shelf", shelf="shelf:from_url")
    with pytest.raises(BadOption) as caught:
        af.Engine("shelve://orders")
    assert "shelf://, sqlite://; did you mean shelf://?" in str(caught.value)
    with pytest.raises(BadOption, match=r"memory://, .*shelf://, sqlite://$"):
        af.Engine("redis://localhost")
    assert "did you mean shelf://" in _error("ps", "shel://orders")


def _error(*arguments: str) -> str:
    result = CliRunner().invoke(application(), list(arguments))
    assert result.exit_code == 2  # wrong usage
    return result.output + str(result.stderr)


def test_what_is_installed_but_cannot_work_is_told(install: Callable[..., Path]) -> None:
    install(
        "shelf",
        gone="nowhere_to_be_found:from_url",
        misspelt="shelf:from_ulr",
        wrong="shelf:no_store",
    )
    for scheme, text in (
        ("gone", "cannot be loaded: No module named 'nowhere_to_be_found'"),
        ("misspelt", "cannot be loaded: .*from_ulr"),
        ("wrong", "is 'wrong://x', which is not a store"),
    ):
        with pytest.raises(BadOption, match=text):
            open_store(f"{scheme}://x")


def test_two_packages_for_one_scheme_are_refused(install: Callable[..., Path]) -> None:
    install("shelf", shelf="shelf:from_url")
    install("rack", shelf="rack:from_url")
    with pytest.raises(BadOption, match=r"several packages .*rack:from_url, shelf:from_url"):
        open_store("shelf://x")


def test_the_same_entry_twice_is_one(install: Callable[..., Path]) -> None:
    install("shelf", shelf="shelf:from_url")
    install("rack", shelf="shelf:from_url")
    open_store("shelf://x").close()


def test_what_is_not_a_store_is_refused() -> None:
    given: Any = 7
    with pytest.raises(BadOption, match="is 7, which is not a store"):
        af.Engine(given)


def test_files_are_no_urls() -> None:
    for file in ("orders.db", ":memory:", "C://orders.db", "a/b://c", Path("x://y"), ""):
        assert scheme_of(file) is None
    assert scheme_of("x+y.z-1://") == "x+y.z-1"


def test_nobody_looks_for_packages_where_there_is_no_url(tmp_path: Path) -> None:
    script = (
        "import sys, actorflow as af\n"
        "af.Engine(':memory:').close()\naf.Engine(sys.argv[1]).close()\n"
        "print('importlib.metadata' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "s.db")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stdout == "False\n"


@pytest.mark.parametrize("name", ["psycopg", "nats"])
def test_a_store_whose_extra_is_not_installed_says_what_to_install(name: str) -> None:
    url = {"psycopg": "postgresql://me@db/orders", "nats": "nats://one/orders"}[name]
    script = (
        f"import sys; sys.modules[{name!r}] = None; import actorflow as af\n"
        f"try: af.Engine({url!r})\n"
        "except af.BadOption as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stdout.endswith(f"Install what it needs: {install_hint('cluster')}\n")
