"""The searchable parts of a turn: its blocks, and the texts of its attached files, as snippets."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise

from everturn.events.turn_view import have_same_text
from everturn.files.model import Artifact
from everturn.memory.search import MAX_SNIPPET_CHARS, Snippet, SnippetTarget
from everturn.timeline.blocks import (
    AnchorBody,
    AttachmentBody,
    Block,
    CompletionBody,
    EventBody,
    PromptBody,
    SignalBody,
    SummaryBody,
)

_BORDERS = ("\n\n", "\n", ". ", " ")
MIN_SHARE = 0.4
"""A part is not cut before this share of its limit, so that small paragraphs don't become many parts."""

MAX_SNIPPETS = 128
"""Limit of one turn, the most useful first: summaries and anchors, then messages, then files."""
MAX_TEXT_CHUNKS = 16
"""Limit of one prompt or answer."""
MAX_FILE_CHUNKS = 48
"""Limit of one attached file."""
MAX_ANCHOR_CHARS = 1_000
_ANCHORS_LABELS = ("retrieval anchors", "retrieval-anchors", "anchors", "phrases", "entities")
_RANKS = (
    SnippetTarget.SUMMARY,
    SnippetTarget.NOTES,
    SnippetTarget.USER,
    SnippetTarget.ASSISTANT,
    SnippetTarget.ATTACHMENT,
)


def cut_chunks(text: str, *, limit: int, max_chars: int = MAX_SNIPPET_CHARS) -> list[str]:
    """At most `limit` parts of at most `max_chars` characters, in order, without surrounding blanks. Cuts at
    paragraphs, lines, sentences or words if possible."""
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


def build_snippets(blocks: Sequence[Block], texts: Mapping[str, str]) -> list[Snippet]:
    """The snippets of one turn. `texts` contains the readable texts of attached files, by ref."""
    found = [snippet for block in _leave_out_repeated(blocks) for snippet in _build_of_block(block, texts)]
    return list(islice(sorted(found, key=lambda snippet: _RANKS.index(snippet.target)), MAX_SNIPPETS))


def find_attachments(blocks: Iterable[Block]) -> list[Artifact]:
    """The files attached to the turn and to its signals, each once."""
    found: dict[str, Artifact] = {}
    for block in blocks:
        for artifact in _attached(block):
            found.setdefault(artifact.ref, artifact)
    return list(found.values())


def read_anchors(summary: str) -> str:
    """The values of the lines of a working summary that list its search terms."""
    lines = (line.strip(" -*") for line in summary.splitlines())
    found = [value.strip() for label, colon, value in (line.partition(":") for line in lines)
             if colon and label.strip(" *").lower() in _ANCHORS_LABELS]  # fmt: skip
    return "\n".join(found)[:MAX_ANCHOR_CHARS]


def _leave_out_repeated(blocks: Sequence[Block]) -> Iterator[Block]:
    """All blocks except deferred answers that were repeated: clients show equal answers once, the last one."""
    answers = [(block.ref, block.body.text) for block in blocks if isinstance(block.body, CompletionBody)]
    repeated = {ref for (ref, text), (_, later) in pairwise(answers) if have_same_text(text, later)}
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
            # An anchor is only a cue: all of it consists of search terms.
            yield from _cut(block, SnippetTarget.NOTES, text, anchors=text[:MAX_ANCHOR_CHARS])
        case _:
            pass
    for artifact in _attached(block):
        yield from _build_of_file(block, artifact, texts.get(artifact.ref, ""))


def _cut(block: Block, target: SnippetTarget, text: str, *, anchors: str = "") -> Iterator[Snippet]:
    for chunk in cut_chunks(text, limit=MAX_TEXT_CHUNKS):
        yield Snippet(target, block.ref, chunk, block.ts, anchors)


def _build_of_file(block: Block, artifact: Artifact, text: str) -> Iterator[Snippet]:
    """Snippets of a file; one without a text is found only by its name."""
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
