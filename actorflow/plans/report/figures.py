"""What the pictures of plans share: the style, and files in the format of their name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from actorflow.plans.job_record import JobStatus
from actorflow.runtime.errors import BadOption, MissingExtra, install_hint

if TYPE_CHECKING:
    import os

    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "FAILED",
    "FORMATS",
    "STATUS_COLOURS",
    "STYLE",
    "new_figure",
    "require_drawable",
    "save",
]

COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a4ea3", "#8c6d31",
    "#1b7837", "#5b6770",
)  # fmt: skip
FAILED = "#b2182b"
STATUS_COLOURS = {
    JobStatus.WAITING: "#ffffff",
    JobStatus.READY: "#ffffff",
    JobStatus.RUNNING: "#cfe3f3",
    JobStatus.DONE: "#d3ecd8",
    JobStatus.CACHED: "#ececec",
    JobStatus.FAILED: "#f5c6c6",
    JobStatus.SKIPPED: "#fbe6c8",
}
STYLE: dict[Any, Any] = {
    "axes.edgecolor": "#888888", "axes.labelcolor": "#333333", "axes.spines.right": False,
    "axes.spines.top": False, "axes.titlesize": 10, "axes.titlelocation": "left",
    "font.size": 9, "legend.frameon": False, "xtick.color": "#555555", "ytick.color": "#555555",
    "svg.hashsalt": "actorflow", "svg.fonttype": "none",
}  # fmt: skip
FORMATS = ("png", "svg", "pdf")


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure; sizes are in inches.

    Raises:
        MissingExtra: matplotlib is not installed.

    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        missing = (error.name or "matplotlib").partition(".")[0]
        msg = f"pictures need {missing}: {install_hint('lab')}"
        raise MissingExtra(msg) from error
    return Figure(figsize=(width, height), layout="constrained")


def require_drawable(path: str | os.PathLike[str]) -> None:
    """Check that a picture can be drawn there, before a run that takes hours.

    Raises:
        BadOption: its name ends with no known format, or its folder does not exist.
        MissingExtra: matplotlib is not installed.

    """
    _format_of(path)
    folder = Path(path).parent
    if not folder.is_dir():
        raise BadOption(f"{str(path)!r} cannot be drawn: there is no folder {str(folder)!r}")
    new_figure(1, 1)


def _format_of(path: str | os.PathLike[str]) -> str:
    suffix = Path(path).suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        names = ", ".join(f".{each}" for each in FORMATS)
        raise BadOption(f"{str(path)!r} must end with one of {names}")
    return suffix


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure in the format that the name of the file ends with.

    Raises:
        BadOption: it ends with none that is known.

    """
    suffix = _format_of(path)
    from matplotlib import rc_context  # noqa: PLC0415 - an extra, and slow to import

    # No date and no version in the file: the same run makes the same picture.
    metadata: dict[str, Any] = {"Date": None} if suffix == "svg" else {}
    if suffix == "png":
        metadata = {"Software": None}
    if suffix == "pdf":
        metadata = {"CreationDate": None, "Producer": None}
    with rc_context(STYLE):
        figure.savefig(path, format=suffix, dpi=144, metadata=metadata)
