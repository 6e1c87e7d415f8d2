"""Searching what was said."""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from everturn.ports.memory.search import MAX_LIMIT
from ingress.admission.json_body import Cursor, JsonBody
from ingress.admission.moments import Moment

MAX_QUERY_CHARS = 2_000
Target = Literal["user", "assistant", "summary", "notes", "attachment"]
Comparison = Literal["meanings and words", "words only"]


class SearchIn(JsonBody):
    """The query. `from` is included, `to` is not; without `targets` all kinds of texts are searched."""

    query: Annotated[str, StringConstraints(max_length=MAX_QUERY_CHARS, pattern=r"\S")] = Field(
        examples=["which region sold most"]
    )
    limit: int = Field(default=10, ge=1, le=MAX_LIMIT, description="Maximum number of hits on a page.")
    conversation_id: str | None = Field(default=None, max_length=80, description="Only in this conversation.")
    targets: tuple[Target, ...] | None = Field(default=None, min_length=1, max_length=5, strict=False)
    compare: Comparison = Field(
        default="meanings and words",
        description="With `words only`, a hit contains at least one of the words; otherwise any text can be a hit.",
    )
    since: Moment | None = Field(default=None, alias="from", strict=False)
    until: Moment | None = Field(default=None, alias="to", strict=False)
    cursor: Cursor | None = Field(
        default=None, description="The `next_cursor` of the previous page; valid for an hour."
    )

    @model_validator(mode="after")
    def check_period(self) -> Self:
        """A period has a beginning before its end."""
        if self.since and self.until and self.since >= self.until:
            raise ValueError("from comes before to")
        return self


class HitOut(JsonBody):
    """One hit: `ref` names the full text of the snippet, `title` is its conversation's current title. `score` only
    orders the hits of one search."""

    conversation_id: str
    title: str
    turn_id: str
    target: Target
    ref: str
    snippet: str
    ts: str
    score: float


class SearchOut(JsonBody):
    """Hits, best first. `compared` says whether meanings were compared or only words, as requested or because
    the encoder did not respond within 3 s, for example while it loads."""

    items: tuple[HitOut, ...]
    compared: Comparison
    next_cursor: str | None
