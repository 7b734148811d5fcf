"""Results for other programs: JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actorflow.lab.run.result import Result

__all__ = ["as_csv", "as_json"]

_CURVES = ("curve", "depth_series", "batch_series")


def as_json(
    results: Sequence[Result], parameters: Mapping[str, Any], *, complete: bool = True
) -> str:
    """Return everything as JSON, curves included."""
    found = {
        "parameters": dict(parameters),
        "complete": complete,
        "results": [result.as_dict() for result in results],
    }
    return json.dumps(found, indent=1, default=str)


def as_csv(results: Sequence[Result]) -> str:
    """Return one line per policy, without the curves."""
    out = io.StringIO()
    flat = [_flat(result) for result in results]
    names = list(dict.fromkeys(name for row in flat for name in row))
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return out.getvalue()


def _flat(result: Result) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in result.as_dict().items():
        if name in _CURVES or name == "priorities":
            continue
        if name == "latency":
            row |= value
        elif name == "intervals":
            for figure, (low, high) in value.items():
                row |= {f"{figure}_low": low, f"{figure}_high": high}
        else:
            row[name] = value
    return row
