"""Memories as their owner sees them."""

from pydantic import Field

from ingress.admission.json_body import JsonBody

ID_EXAMPLE = "mem_0f1e2d3c4b5a69788796"


class MemoryOut(JsonBody):
    """One memory. `confidence` and `salience` are from 0 to 1; times are ISO 8601 in UTC."""

    memory_id: str = Field(examples=[ID_EXAMPLE])
    text: str = Field(examples=["Prefers metric units."])
    labels: tuple[str, ...] = Field(examples=[["preference"]])
    pinned: bool = Field(examples=[False])
    confidence: float = Field(examples=[0.8])
    salience: float = Field(examples=[0.5])
    created_at: str = Field(examples=["2026-03-01T12:00:00.000Z"])
    updated_at: str = Field(examples=["2026-03-01T12:00:00.000Z"])


class MemoryList(JsonBody):
    """One page, most recently changed first; `next_cursor` leads to the next page and is null at the end."""

    items: tuple[MemoryOut, ...]
    next_cursor: str | None = Field(examples=[None])


class ForgottenOut(JsonBody):
    """How many memories were forgotten."""

    forgotten: int = Field(examples=[1])
