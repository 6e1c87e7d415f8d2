"""What of a turn is to be found later: its blocks, and the texts of its attached files, as snippets."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise

from everturn.events.turn_view import says_the_same
from everturn.files.model import Artifact
from everturn.memory.search import MAX_SNIPPET_CHARS, Snippet, SnippetTarget
from everturn.timeline.blocks import Block
from everturn.timeline.bodies import (
    AnchorBody,
    AttachmentBody,
    CompletionBody,
    EventBody,
    PromptBody,
    SignalBody,
    SummaryBody,
)

# Cuts a long text into parts that a snippet can hold, at paragraphs, lines, sentences or words where there are any.

_BORDERS = ("\n\n", "\n", ". ", " ")
MIN_SHARE = 0.4
"""A part is not cut before this share of its limit, so that small paragraphs don't become many parts."""


def cut_chunks(text: str, *, limit: int, max_chars: int = MAX_SNIPPET_CHARS) -> list[str]:
    """At most `limit` parts of at most `max_chars` characters, in order, without blanks around them."""
    found: list[str] = []
    for chunk in _walk(text, max_chars):
        if len(found) >= limit:
            break
        found.append(chunk)
    return found


def _walk(text: str, max_chars: int) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = _find_end(text, start, max_chars)
        chunk = text[start:end].strip()
        if chunk:
            yield chunk
        start = end


def _find_end(text: str, start: int, max_chars: int) -> int:
    if len(text) - start <= max_chars:
        return len(text)
    earliest = start + int(max_chars * MIN_SHARE)
    for border in _BORDERS:
        place = text.rfind(border, earliest, start + max_chars)
        if place >= 0:
            return place + len(border)
    return start + max_chars


MAX_SNIPPETS = 128
"""Of one turn, the most telling first: summaries and anchors, then what was said, then files."""
MAX_TEXT_CHUNKS = 16
"""Of one prompt or answer."""
MAX_FILE_CHUNKS = 48
"""Of one attached file."""
MAX_ANCHOR_CHARS = 1_000
_ANCHORS_LABELS = ("retrieval anchors", "retrieval-anchors", "anchors", "phrases", "entities")
_RANKS = (
    SnippetTarget.SUMMARY,
    SnippetTarget.NOTES,
    SnippetTarget.USER,
    SnippetTarget.ASSISTANT,
    SnippetTarget.ATTACHMENT,
)


def build_snippets(blocks: Sequence[Block], texts: Mapping[str, str]) -> list[Snippet]:
    """The snippets of one turn. `texts` holds what could be read of attached files, by ref."""
    found = [snippet for block in _leave_out_repeated(blocks) for snippet in _build_of_block(block, texts)]
    return list(islice(sorted(found, key=lambda snippet: _RANKS.index(snippet.target)), MAX_SNIPPETS))


def find_attachments(blocks: Iterable[Block]) -> list[Artifact]:
    """The files that came with the turn and with what was said to it, each once."""
    found: dict[str, Artifact] = {}
    for block in blocks:
        for artifact in _attached(block):
            found.setdefault(artifact.ref, artifact)
    return list(found.values())


def read_anchors(summary: str) -> str:
    """What stands on the lines of a working summary that name what it should be found by."""
    lines = (line.strip(" -*") for line in summary.splitlines())
    found = [value.strip() for label, colon, value in (line.partition(":") for line in lines)
             if colon and label.strip(" *").lower() in _ANCHORS_LABELS]  # fmt: skip
    return "\n".join(found)[:MAX_ANCHOR_CHARS]


def _leave_out_repeated(blocks: Sequence[Block]) -> Iterator[Block]:
    """All blocks but answers that were deferred and then given again: clients show equal answers once, the last one."""
    answers = [(block.ref, block.body.text) for block in blocks if isinstance(block.body, CompletionBody)]
    repeated = {ref for (ref, text), (_, later) in pairwise(answers) if says_the_same(text, later)}
    return (block for block in blocks if block.ref not in repeated)


def _build_of_block(block: Block, texts: Mapping[str, str]) -> Iterator[Snippet]:
    match block.body:
        case PromptBody(text=text):
            yield from _cut(block, SnippetTarget.USER, text)
        case SignalBody(text=text) | EventBody(text=text):
            yield from _cut(block, SnippetTarget.USER, text)
        case CompletionBody(text=text):
            yield from _cut(block, SnippetTarget.ASSISTANT, text)
        case SummaryBody(text=text):
            yield from _cut(block, SnippetTarget.SUMMARY, text, anchors=read_anchors(text))
        case AnchorBody(text=text):
            # An anchor is nothing but a cue: all of it is what it should be found by.
            yield from _cut(block, SnippetTarget.NOTES, text, anchors=text[:MAX_ANCHOR_CHARS])
        case _:
            pass
    for artifact in _attached(block):
        yield from _build_of_file(block, artifact, texts.get(artifact.ref, ""))


def _cut(block: Block, target: SnippetTarget, text: str, *, anchors: str = "") -> Iterator[Snippet]:
    for chunk in cut_chunks(text, limit=MAX_TEXT_CHUNKS):
        yield Snippet(target, block.ref, chunk, block.ts, anchors)


def _build_of_file(block: Block, artifact: Artifact, text: str) -> Iterator[Snippet]:
    """A file without a text is found by its name alone."""
    named = f"{artifact.filename} ({artifact.mime})"
    yield Snippet(SnippetTarget.ATTACHMENT, artifact.ref, named, block.ts, artifact.filename)
    for chunk in cut_chunks(text, limit=MAX_FILE_CHUNKS):
        yield Snippet(SnippetTarget.ATTACHMENT, artifact.ref, chunk, block.ts)


def _attached(block: Block) -> tuple[Artifact, ...]:
    match block.body:
        case AttachmentBody(artifact=artifact):
            return (artifact,)
        case SignalBody(attachments=attachments) | EventBody(attachments=attachments):
            return attachments
        case _:
            return ()
