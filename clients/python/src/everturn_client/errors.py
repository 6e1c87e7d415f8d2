"""Errors between this client and a server."""

import re

from everturn.core.errors import EverturnError, Problem

_BYTE = re.compile("[\udc80-\udcff]")
"""Python's representation of bytes that are not UTF-8."""


class ProblemError(EverturnError):
    """The server rejected the request."""

    def __init__(self, problem: Problem, *, fields: tuple[str, ...] = (), retry_after_s: float | None = None) -> None:
        self.problem = problem
        self.fields = fields
        self.retry_after_s = retry_after_s
        # A field's message often repeats the detail; show it once.
        detail = "" if any(problem.detail in field for field in fields) else problem.detail
        sentences = [part.rstrip(".") for part in (problem.title, detail, "; ".join(fields)) if part]
        super().__init__(f"{'. '.join(sentences)} ({problem.status}).")


class Unreachable(EverturnError):
    """The server could not be reached."""


class BadAnswer(EverturnError):
    """The server sent a response that this client can't read."""


class TooMuch(EverturnError):
    """More data than this client accepts."""


class BadInput(EverturnError):
    """This value can't be sent."""


class TimedOut(EverturnError):
    """The turn did not end in time."""


def check_utf8(text: str, name: str, remedy: str) -> None:
    """Raise BadInput for external text that is not UTF-8. Python keeps such bytes of arguments, variables, file names
    and standard input as surrogates, which can't be encoded. `name` describes the text."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        near = text[max(0, error.start - 20) : error.end + 20].strip()
        shown = _BYTE.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", near)
        shown = shown.encode(errors="backslashreplace").decode()
        raise BadInput(f'{name} is not valid UTF-8 near "{shown}". {remedy}') from error
