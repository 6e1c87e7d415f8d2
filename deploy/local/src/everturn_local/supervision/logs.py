"""Log files of the parts: rotated at start, and watched for what the terminal shows."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from everturn.timeline.inert import escape_line

MAX_LOG_BYTES = 10 * 1024 * 1024
MAX_READ_BYTES = 256 * 1024
ERROR_LEVELS = frozenset({"error", "critical"})
SHOWN_EVENTS = {
    "Loaded a bundle": ("bundle_id",),
    "A bundle can be used again": ("bundle_id",),
    "Removed a bundle": ("bundle_id",),
    "Output of a bundle": ("bundle_id", "text"),
    "Output of an MCP server": ("server", "text"),
    "An MCP server can't be used": ("server", "why"),
    "Could not connect to an MCP server": ("server", "why"),
    "A tool of an MCP server is not as configured": ("why",),
    "A rule of a bundle is for no tool": ("bundle_id", "why"),
    "Model call failed": ("error",),
    "The reply of a script is not valid": ("why",),
    "Could not update a knowledge space": ("bundle_id", "space", "error"),
    "Could not evaluate a rule of a bundle": ("tool_id", "when", "error"),
}
"""What authors wait for after they have saved, and what they have to correct, with the values that are shown."""
MAX_SHOWN_CHARS = 600
"""Of an entry. A reason ends with what a server wrote last."""
MAX_OUTPUT_LINES = 12
MAX_OUTPUT_CHARS = 2_100
"""Of the output of a program in an error, such as that of pip."""


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


class LogWatch:
    """Reads one log from its current end and returns what to show of the lines that were added since the last call."""

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
        return render_entries(self._name, complete.decode(errors="replace").splitlines())


def render_entries(name: str, lines: Sequence[str], max_lines: int = 3) -> list[str]:
    """Short terminal lines for errors and for SHOWN_EVENTS; the rest is counted."""
    entries = [text for line in lines if (text := _try_render(line))]
    shown = [f"{name}: {text}" for text in entries[:max_lines]]
    more = len(entries) - len(shown)
    return [*shown, f"{name}: {more} more, see its log"] if more else shown


def _try_render(line: str) -> str | None:
    """What to show of a line; None if it is no JSON entry or nothing that the terminal shows. Control characters are
    escaped: programs of other authors could clear the screen, or imitate another line."""
    if not line.startswith("{"):
        return None
    try:
        entry = cast("dict[str, Any]", json.loads(line))
    except ValueError:
        return None
    event = str(entry.get("event", "error"))
    if event in SHOWN_EVENTS:
        values = (str(entry.get(key, "")) for key in SHOWN_EVENTS[event])
        return escape_line(": ".join((event, *filter(None, values))))[:MAX_SHOWN_CHARS]
    if str(entry.get("level", "")).lower() not in ERROR_LEVELS:
        return None
    subject = entry.get("tool_id") or entry.get("bundle_id")
    about = event + (f": {subject}" if subject else "")
    raised, error = (str(entry.get(key) or "").strip().splitlines() for key in ("exception", "error"))
    # The last line of a traceback is the exception; an error begins with a sentence, and output of a program follows.
    cause = "".join(raised[-1:] or error[:1])
    shown = escape_line(about + (f" ({cause})" if cause else ""))[:MAX_SHOWN_CHARS]
    output = "".join(f"\n    {escape_line(text)}" for text in ([] if raised else error[1:])[-MAX_OUTPUT_LINES:])
    return shown + output[:MAX_OUTPUT_CHARS]
