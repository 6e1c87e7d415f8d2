"""Snippets: the short texts that memory search finds, each with the ref under which the whole can be read."""

from dataclasses import dataclass

from everturn.model.open_values import OpenEnum

MAX_SNIPPET_CHARS = 1_000
"""About 250 tokens: what the local encoder takes in."""


class SnippetTarget(OpenEnum):
    """What kind of text a snippet is of: prompts and signals, answers, working summaries, anchors, attached files."""

    USER = "user"
    ASSISTANT = "assistant"
    SUMMARY = "summary"
    NOTES = "notes"
    ATTACHMENT = "attachment"

    @classmethod
    def stand_in(cls) -> "SnippetTarget":
        """A text of unknown origin is found as a note."""
        return cls.NOTES


@dataclass(frozen=True, slots=True)
class Snippet:
    """One text. `anchors` are phrases and names it should be found by above all; `ts` is ISO 8601 in UTC."""

    target: SnippetTarget
    ref: str
    text: str
    ts: str
    anchors: str = ""
