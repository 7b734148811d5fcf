"""What a function prints and warns of, caught in the worker process."""

from __future__ import annotations

import io
import sys
import warnings
from typing import Any, TextIO

__all__ = ["Capture", "said"]

_MOST = 1024 * 1024
"""Bytes of each stream that are kept for one call."""
_WARNINGS_MOST = 100


class _Kept(io.BytesIO):
    """Keeps written text, up to a limit."""

    dropped = 0

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if self.tell() + size > _MOST:
            self.dropped += size
            return size
        return super().write(data)


class _Stream:
    """Stands for `sys.stdout` or `sys.stderr`."""

    def __init__(self) -> None:
        self._kept = _Kept()
        self.text = self._wrapped()

    def _wrapped(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(
            self._kept, encoding="utf-8", errors="backslashreplace", write_through=True
        )

    def peek(self) -> str:
        """Return the text written since the last `take`."""
        kept = self._kept
        if kept.closed or not (kept.tell() or kept.dropped):
            return ""
        text = kept.getvalue().decode("utf-8", "backslashreplace")
        if kept.dropped:
            text += f"\n... {kept.dropped} more bytes were left out\n"
        return text

    def take(self) -> str:
        """Return the text written since the last `take`, and forget it."""
        kept = self._kept
        if kept.closed:  # by the function
            self._kept = _Kept()
            self.text = self._wrapped()
            return ""
        text = self.peek()
        if text:
            kept.dropped = 0
            kept.seek(0)
            kept.truncate()
        return text


class Capture:
    """Replaces the standard streams, and the display of warnings, for the life of the process."""

    def __init__(self) -> None:
        self._out = _Stream()
        self._err = _Stream()
        self._warnings: list[str] = []
        self.install()
        _installed.append(self)
        warnings.showwarning = self._note

    def install(self) -> None:
        """Replace the streams, also after a function has replaced them."""
        sys.stdout = self._out.text
        sys.stderr = self._err.text

    def _note(  # noqa: PLR0917 - the signature of `warnings.showwarning`
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if len(self._warnings) < _WARNINGS_MOST:
            self._warnings.append(
                warnings.formatwarning(message, category, filename, lineno, line).rstrip()
            )

    def peek(self) -> tuple[str, str, tuple[str, ...]]:
        """Return stdout, stderr and warnings since the last `take`."""
        return self._out.peek(), self._err.peek(), tuple(self._warnings)

    def take(self) -> tuple[str, str, tuple[str, ...]] | None:
        """Return stdout, stderr and warnings since the last `take`; `None` if all are empty."""
        out = self._out.take()
        err = self._err.take()
        if sys.stdout is not self._out.text or sys.stderr is not self._err.text:
            self.install()
        if not (out or err or self._warnings):
            return None
        noted = tuple(self._warnings)
        self._warnings.clear()
        return out, err, noted


_installed: list[Capture] = []  # the one of this process, if it is a worker


def said() -> tuple[str, str, tuple[str, ...]]:
    """Return what the call in hand has printed and warned of: stdout, stderr, warnings.

    Nothing outside of a worker process, where nothing is caught.
    """
    return _installed[-1].peek() if _installed else ("", "", ())
