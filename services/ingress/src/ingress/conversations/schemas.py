"""Conversations as clients list, change and read them."""

from typing import Literal

from pydantic import Field

from everturn.wire.views import ConversationView, TurnView
from ingress.admission.json_body import BUNDLE_HELP, BundleId, Cursor, JsonBody, is_absent
from ingress.admission.lines import Line

MAX_TURN_IDS = 100
MAX_STEP_CHARS = 200
State = Literal["idle", "queued", "running", "waiting", "error"]


class ConversationIn(JsonBody):
    """A new conversation."""

    title: Line = Field(default="", examples=["Sales by region"])
    bundle_id: BundleId | None = Field(default=None, description=BUNDLE_HELP)


class ConversationPatch(JsonBody):
    """What is to change."""

    title: Line | None = Field(default=None, examples=["Sales by region"])
    archived: bool | None = Field(default=None, examples=[True])


class ConversationOut(ConversationView):
    """A conversation. While its turn `turn_id` waits, `position` is how many turns are taken before it, 0 for the next
    one; with `position_more` there are more than that."""

    turn_id: str | None = Field(default=None, exclude_if=is_absent)
    position: int | None = Field(default=None, exclude_if=is_absent)
    position_more: bool | None = Field(default=None, exclude_if=is_absent)


class TurnOut(TurnView):
    """A turn. While it waits, it has its `position` as a conversation has."""

    position: int | None = None
    position_more: bool | None = None


class ConversationList(JsonBody):
    """One page, newest activity first; `next_cursor` gets the next one and is null at the end."""

    items: tuple[ConversationView, ...]
    next_cursor: str | None


class ErasedOut(JsonBody):
    """What was erased: rows by table, and objects. `objects_left` could not be deleted."""

    conversation_id: str
    rows: dict[str, int]
    objects: int
    objects_left: int = 0


class FetchIn(JsonBody):
    """Which turns to read: the newest `limit` of all, of the named ones, or of those before `cursor`. A page has up to
    4 MiB, or one larger turn: `next_cursor` gets the rest, with the same `turn_ids`."""

    conversation_id: str = Field(max_length=80, examples=["conv_01890a5d-ac96-774b-bcce-b302099a8057"])
    turn_ids: tuple[str, ...] | None = Field(default=None, min_length=1, max_length=MAX_TURN_IDS, strict=False)
    cursor: Cursor | None = None
    limit: int = Field(default=20, ge=1, le=MAX_TURN_IDS)
    materialize: bool = Field(default=False, description="Also the timeline with its sources, and the turn logs.")


class TurnsIn(JsonBody):
    """Which judged turns to read: the newest hundred of the named ones, of all, or of those before `cursor`. A page has
    up to 4 MiB, or one larger turn."""

    turn_ids: tuple[str, ...] | None = Field(default=None, min_length=1, max_length=MAX_TURN_IDS, strict=False)
    cursor: Cursor | None = None


class TurnsOut(JsonBody):
    """Turns that somebody judged, oldest first; `next_cursor` gets older ones, and is absent at the end."""

    conversation_id: str
    turns: tuple[TurnView, ...]
    next_cursor: str | None = None
