"""Log files of the parts: rotated at start, and watched for errors to show on the terminal."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

MAX_LOG_BYTES = 10 * 1024 * 1024
MAX_READ_BYTES = 256 * 1024
MAX_LINE_CHARS = 200
ERROR_LEVELS = frozenset({"error", "critical"})


def save_rotated(log: Path) -> None:
    """Rotate a log that has grown too large; one older file is kept."""
    if log.exists() and log.stat().st_size > MAX_LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))


def load_tail(log: Path, max_lines: int = 8, *, start: int = 0) -> list[str]:
    """The last lines after byte `start`, from the last MAX_READ_BYTES."""
    if not log.exists():
        return []
    with log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - MAX_READ_BYTES))
        return file.read(MAX_READ_BYTES).decode(errors="replace").splitlines()[-max_lines:]


class ErrorWatch:
    """Reads one log from its current end and returns the errors that were added since the last call."""

    def __init__(self, name: str, log: Path) -> None:
        self._name = name
        self._log = log
        self._position = log.stat().st_size if log.exists() else 0

    def load_new(self) -> list[str]:
        if not self._log.exists():
            return []
        size = self._log.stat().st_size
        start = min(self._position, size)
        with self._log.open("rb") as file:
            file.seek(start)
            added = file.read(MAX_READ_BYTES)
        complete = added[: added.rfind(b"\n") + 1]
        self._position = size if not complete and size - start > MAX_READ_BYTES else start + len(complete)
        return render_errors(self._name, complete.decode(errors="replace").splitlines())


def render_errors(name: str, lines: Sequence[str], max_errors: int = 3) -> list[str]:
    """Short terminal lines for entries of level error and above; the rest is counted."""
    errors = [text for line in lines if (text := _try_error(line))]
    shown = [f"{name}: {text[:MAX_LINE_CHARS]}" for text in errors[:max_errors]]
    more = len(errors) - len(shown)
    return [*shown, f"{name}: {more} more errors, see its log"] if more else shown


def _try_error(line: str) -> str | None:
    """The error of a line; None if it is no JSON entry or no error."""
    if not line.startswith("{"):
        return None
    try:
        entry = cast("dict[str, Any]", json.loads(line))
    except ValueError:
        return None
    if str(entry.get("level", "")).lower() not in ERROR_LEVELS:
        return None
    cause = str(entry.get("exception") or entry.get("error") or "").strip().splitlines()
    return f"{entry.get('event', 'error')}" + (f" ({cause[-1]})" if cause else "")
