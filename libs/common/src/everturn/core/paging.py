"""Cursors of lists: opaque to clients; internally a kind and some texts."""

import base64
import binascii
import json
from datetime import datetime

from everturn.core.errors import Invalid

MAX_CURSOR_CHARS = 1_000


class BadCursor(Invalid):
    """This is not a valid cursor."""


class OldCursor(Invalid):
    """This cursor is too old. Start the list again."""


def build_cursor(kind: str, *parts: str) -> str:
    """The cursor that `read_cursor` parses."""
    return base64.urlsafe_b64encode(json.dumps([kind, *parts]).encode()).decode().rstrip("=")


def read_cursor(cursor: str, kind: str, *, parts: int) -> tuple[str, ...]:
    """The parts that `build_cursor` received. Raises BadCursor for anything else."""
    if len(cursor) > MAX_CURSOR_CHARS:
        raise BadCursor()
    try:
        read = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError) as error:
        raise BadCursor() from error
    match read:
        case [str(found), *texts] if found == kind and len(texts) == parts and all(isinstance(t, str) for t in texts):
            return tuple(texts)
        case _:
            raise BadCursor()


def read_moment(text: str) -> datetime:
    """A time with a zone from a cursor, within years that databases support. Raises BadCursor."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadCursor() from error
    if moment.tzinfo is None or not 1970 <= moment.year < 9000:
        raise BadCursor()
    return moment
