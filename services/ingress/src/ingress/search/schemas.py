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
    """What to look for. `from` is inclusive and `to` is not; without `targets` all kinds of texts are searched."""

    query: Annotated[str, StringConstraints(max_length=MAX_QUERY_CHARS, pattern=r"\S")] = Field(
        examples=["which region sold most"]
    )
    limit: int = Field(default=10, ge=1, le=MAX_LIMIT, description="Hits of a page.")
    conversation_id: str | None = Field(default=None, max_length=80, description="Only in this conversation.")
    targets: tuple[Target, ...] | None = Field(default=None, min_length=1, max_length=5, strict=False)
    compare: Comparison = Field(
        default="meanings and words",
        description="With `words only`, a hit has one of the words at least; otherwise any text may be one.",
    )
    since: Moment | None = Field(default=None, alias="from", strict=False)
    until: Moment | None = Field(default=None, alias="to", strict=False)
    cursor: Cursor | None = Field(default=None, description="The `next_cursor` of the page before; good for an hour.")

    @model_validator(mode="after")
    def check_period(self) -> Self:
        """A period has a beginning before its end."""
        if self.since and self.until and self.since >= self.until:
            raise ValueError("from comes before to")
        return self


class HitOut(JsonBody):
    """One hit: `ref` names the whole text that the snippet is of, `title` is its conversation's as it is now. `score`
    orders the hits of one search, no more."""

    conversation_id: str
    title: str
    turn_id: str
    target: Target
    ref: str
    snippet: str
    ts: str
    score: float


class SearchOut(JsonBody):
    """The best first. `compared` says whether meanings were compared, or only words: as asked, or because the encoder
    gave no vector within 3 s, as while it is loaded."""

    items: tuple[HitOut, ...]
    compared: Comparison
    next_cursor: str | None
