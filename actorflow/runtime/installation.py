"""Where this package was installed from, which is where its extras can be installed from."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["checkout", "installed_from"]


def checkout() -> Path | None:
    """Return the checkout that this code is in; `None` for a copy in an environment."""
    root = Path(__file__).parents[2]
    return root if (root / "pyproject.toml").exists() else None


def installed_from() -> str | None:
    """Return the folder, file or URL that pip was given; `None` for a release from an index."""
    found = checkout()
    if found is not None:
        return str(found)
    try:
        direct = distribution("actorflow").read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    if direct is None:
        return None
    url: str = json.loads(direct)["url"]
    parts = urlsplit(url)
    if parts.scheme != "file":
        return url
    path = unquote(parts.path)
    return path if Path(path).exists() else None
