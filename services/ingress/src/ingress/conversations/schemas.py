"""Conversations as clients list, change and read them."""

from typing import Literal

from pydantic import Field

from everturn.conversations.model import ConversationChanges, ConversationView
from everturn.events.views import TurnView
from ingress.errors import unprocessable
from ingress.fields import BUNDLE_HELP, BundleId, Cursor, JsonBody, Line, is_absent

MAX_TURN_IDS = 100
MAX_STEP_CHARS = 200
State = Literal["idle", "queued", "running", "waiting", "error"]


class ConversationIn(JsonBody):
    """A new conversation."""

    title: Line = Field(default="", examples=["Sales by region"])
    """The title; without one, it is made from the first message."""
    bundle_id: BundleId | None = Field(default=None, description=BUNDLE_HELP)


class ConversationPatch(JsonBody):
    """The changes; absent fields stay as they are."""

    title: Line | None = Field(default=None, examples=["Sales by region"])
    """The new title."""
    archived: bool | None = Field(default=None, examples=[True])
    """Whether the conversation is archived."""

    def build_changes(self) -> ConversationChanges:
        """Raises a 422 problem if nothing changes."""
        changes = ConversationChanges(self.title, self.archived)
        if changes == ConversationChanges():
            raise unprocessable(f"Set {' or '.join(type(self).model_fields)}.")
        return changes


class ConversationOut(ConversationView):
    """A conversation. While its turn `turn_id` waits, `position` is the number of turns ahead of it, 0 if it is
    next; with `position_more` there are more than that."""

    turn_id: str | None = Field(default=None, exclude_if=is_absent)
    position: int | None = Field(default=None, exclude_if=is_absent)
    position_more: bool | None = Field(default=None, exclude_if=is_absent)


class TurnOut(TurnView):
    """A turn. While it waits, it has its `position` as a conversation has."""

    position: int | None = None
    position_more: bool | None = None


class ConversationList(JsonBody):
    """One page, most recently active first; `next_cursor` leads to the next page and is null at the end."""

    items: tuple[ConversationView, ...]
    next_cursor: str | None


class ErasedOut(JsonBody):
    """What was erased: rows by table, and objects. `objects_left` is how many could not be deleted yet."""

    conversation_id: str
    rows: dict[str, int]
    """How many rows were deleted, by table."""
    objects: int
    """How many stored files were deleted."""
    objects_left: int = 0
    """How many stored files could not be deleted yet; the server tries again."""


class FetchIn(JsonBody):
    """Selects turns: all, or those in `turn_ids`; with `cursor`, only older ones. Returns the newest `limit` of them,
    and at most 4 MiB of stored text unless a single turn is larger. To read on, send `next_cursor` as `cursor` with the
    same `turn_ids`."""

    conversation_id: str = Field(max_length=80, examples=["conv_01890a5d-ac96-774b-bcce-b302099a8057"])
    turn_ids: tuple[str, ...] | None = Field(default=None, min_length=1, max_length=MAX_TURN_IDS, strict=False)
    """The turns' ids."""
    cursor: Cursor | None = None
    """The `next_cursor` of the previous page, for older turns."""
    limit: int = Field(default=20, ge=1, le=MAX_TURN_IDS)
    """The maximum number of turns on a page."""
    materialize: bool = False
    """Whether to return the timeline with its sources and the turn logs as well."""


class TurnsIn(JsonBody):
    """Selects turns with feedback: all, or those in `turn_ids`; with `cursor`, only older ones. Returns the newest
    hundred of them, and at most 4 MiB of stored text unless a single turn is larger."""

    turn_ids: tuple[str, ...] | None = Field(default=None, min_length=1, max_length=MAX_TURN_IDS, strict=False)
    """The turns' ids."""
    cursor: Cursor | None = None
    """The `next_cursor` of the previous page, for older turns."""


class TurnsOut(JsonBody):
    """Turns with feedback, oldest first. `next_cursor` leads to older turns; it is absent on the last page."""

    conversation_id: str
    turns: tuple[TurnView, ...]
    """The turns with feedback, oldest first."""
    next_cursor: str | None = None
