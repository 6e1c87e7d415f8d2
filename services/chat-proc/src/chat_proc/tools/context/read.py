"""`react.read`: shows the targets of refs again, in bounded parts, with a status line for each path first."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from chat_proc.attachments.excerpt import Excerpt, Range, cut_excerpt, load_excerpt
from chat_proc.attachments.media import AttachedMedia, describe_media
from chat_proc.attachments.policy import is_media, max_media_bytes
from chat_proc.attachments.reader import AttachmentReader
from chat_proc.catalog.tool import SourcePool, ToolCall, ToolOutcome, ToolSpec
from chat_proc.channels.citations import renumber_citations
from chat_proc.tools.context.resolve import (
    FoundDocument,
    FoundFile,
    FoundSkill,
    FoundSources,
    FoundStored,
    FoundText,
    Missing,
    ReadPorts,
    Resolver,
)
from chat_proc.tools.context.seen import Seen, ShownText, build_shown_data
from everturn.core.errors import Invalid, NotFound, Unavailable
from everturn.core.refs import sources_ref
from everturn.core.threads import call_sized
from everturn.files.objects import Objects
from everturn.skills.model import INSTRUCTIONS, SKILLS_FOLDER, Skill, SkillFile, is_instructions
from everturn.skills.reader import MAX_SKILL_CHARS
from everturn.timeline.blocks import StoredText
from everturn.timeline.inert import escape_name
from everturn.timeline.sources import PoolFull, Source
from everturn.turns.model import Effect

MAX_PATHS = 20
MAX_CHARS = 20_000
"""Limit of all texts of one call together."""
DEFAULT_CHARS = 12_000
"""Default limit of one path."""

Path = Annotated[str, StringConstraints(min_length=1, max_length=2048)]
Number = int | float | str | bool | None

MAX_URL_CHARS = 500
_MIN_TEXT_CHARS = 80
"""A shorter part of a text is useless."""

MAX_SKILLS_CHARS = 2 * MAX_SKILL_CHARS
"""Limit of all skills of one call together, which are shown whole; one skill with its lists always fits."""
MAX_RESULT_CHARS = 2 * MAX_CHARS + MAX_SKILLS_CHARS
"""Including the status lines of MAX_PATHS paths."""
SHOWN_SKILL_FILES = 40
MAX_SOURCE_ROWS = 100
"""Limit of one path: each row costs a read of its whole text."""


class ReadItem(BaseModel):
    """One path, with the part of it that is wanted. Numbers are validated here and not by the schema, so a bad one
    fails only its path."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path
    line_start: Number = None
    line_count: Number = None
    offset: Number = None
    max_text_symbols: Number = None

    def read_range(self) -> Range:
        """The requested part. Raises Invalid with a sentence for the model."""
        wanted = Range(
            _read_number("line_start", self.line_start, 1),
            _read_number("line_count", self.line_count, 1),
            _read_number("offset", self.offset, 0),
        )
        if wanted.by_lines and wanted.offset:
            raise Invalid("pass either line_start and line_count, or an offset")
        return wanted

    def read_cap(self) -> int:
        """How many characters of this path may be shown. Raises Invalid with a sentence for the model."""
        return min(_read_number("max_text_symbols", self.max_text_symbols, 1) or DEFAULT_CHARS, MAX_CHARS)


class ReadParams(BaseModel):
    """`paths` for whole texts, `items` for parts; `stats_only` leaves the contents out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paths: list[Path] = Field(default_factory=lambda: [])
    items: list[ReadItem | Path] = Field(default_factory=lambda: [])
    stats_only: bool = False

    @model_validator(mode="after")
    def check_number(self) -> "ReadParams":
        if not 0 < len(self.paths) + len(self.items) <= MAX_PATHS:
            raise ValueError(f"pass 1 to {MAX_PATHS} paths or items")
        return self

    def wanted(self) -> list[ReadItem]:
        """All items to read, without duplicates."""
        items = (item if isinstance(item, ReadItem) else ReadItem(path=item) for item in (*self.paths, *self.items))
        return list(dict.fromkeys(items))


def _read_number(name: str, value: Number, least: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise Invalid(f"{name} must be an integer of at least {least}, not {str(value)[:40]!a}")
    return value


def render_rows(rows: Sequence[tuple[Source, str]], max_chars: int) -> tuple[str, bool]:
    """The array, and whether it contains all texts whole. It is valid JSON of at most `max_chars` characters.

    Each row is given with its whole text. A cut text has `text_shown`; rows without room are dropped from the end.
    """
    widest = [_row(source, "", f"[0-{len(text)}]/{len(text)}") for source, text in rows]
    kept = _count_fitting(widest, max_chars)
    left = max_chars - len(_dump(widest[:kept]))
    shown: list[dict[str, Any]] = []
    whole = kept == len(rows)
    for texts_left, (source, text) in zip(range(kept, 0, -1), rows[:kept], strict=True):
        part = _fitting(text, left // texts_left)
        left -= len(_quoted(part)) - len(_quoted(""))
        whole = whole and part == text
        shown.append(_row(source, part, "" if part == text else f"[0-{len(part)}]/{len(text)}"))
    return _dump(shown), whole


def _count_fitting(rows: Sequence[dict[str, Any]], max_chars: int) -> int:
    kept, used = 0, len("[]")
    for row in rows:
        used += len(_dump(row)) + len(",")
        if used > max_chars:
            break
        kept += 1
    return kept


def _row(source: Source, part: str, shown: str) -> dict[str, Any]:
    row: dict[str, Any] = {"sid": source.sid, "title": source.title, "url": source.url[:MAX_URL_CHARS]}
    if source.source_type != "web":
        row["source_type"] = source.source_type
    if source.published_time_iso:
        row["published_time_iso"] = source.published_time_iso
    if source.mime:
        row["mime"] = source.mime
    if shown:
        row["text_shown"] = shown
    return row | {"text": part}


def _fitting(text: str, room: int) -> str:
    """The longest prefix whose JSON needs at most `room` characters more than an empty text."""
    if len(_quoted(text)) - 2 <= room:
        return text
    low, high = 0, min(len(text), max(0, room))
    while low < high:
        middle = (low + high + 1) // 2
        if len(_quoted(text[:middle])) - 2 <= room:
            low = middle
        else:
            high = middle - 1
    return text[:low] if low >= _MIN_TEXT_CHARS else ""


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class _ReadOptions:
    """What to show of one path: at most `cap` characters; with `stats_only` nothing, and no file is attached."""

    range: Range
    cap: int
    stats_only: bool


@dataclass(frozen=True, slots=True)
class _Answer:
    """The result of one path: a status line, and possibly a text or a file for the model to view."""

    status: str
    text: str = ""
    attached: AttachedMedia | None = None
    shown: ShownText | None = None
    failed: bool = False
    untrusted: bool = False
    is_skill: bool = False
    """Whether the text is a skill that is shown whole; it does not count for MAX_CHARS."""


class ReadTool:
    """Reads blocks, files, stored results and sources."""

    def __init__(self, objects: Objects, attachments: AttachmentReader, ports: ReadPorts) -> None:
        self._objects = objects
        self._attachments = attachments
        self._ports = ports
        self.spec = ToolSpec(
            tool_id="react.read",
            summary="Read prompts, answers, notes, plans, tool calls, results, files, sources and turn indexes by ref.",
            guide=files("chat_proc.tools.context").joinpath("read.md").read_text(encoding="utf-8"),
            params=ReadParams,
            effect=Effect.PURE,
            strategy="exploration",
            result_chars=MAX_RESULT_CHARS,
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        params = ReadParams.model_validate(call.params)
        context = call.context
        reading = _Reading(
            self._objects,
            self._attachments,
            Resolver(context, self._ports),
            Seen(context.blocks, context.turn_id),
            context.pool,
        )
        answers: list[_Answer] = []
        left = MAX_CHARS
        # Skills come first: when the result is pruned, its first refs remain.
        for item in sorted(params.wanted(), key=lambda item: not is_instructions(item.path)):
            answer = await reading.answer(item, left, stats_only=params.stats_only)
            left -= 0 if answer.is_skill else len(answer.text)
            answers.append(answer)
        return _build_outcome(answers)


class _Reading:
    """The state of one call."""

    def __init__(
        self, objects: Objects, attachments: AttachmentReader, resolver: Resolver, seen: Seen, pool: SourcePool
    ) -> None:
        self._objects = objects
        self._attachments = attachments
        self._resolver = resolver
        self._seen = seen
        self._pool = pool
        self._skill_chars_left = MAX_SKILLS_CHARS

    async def answer(self, item: ReadItem, left: int, *, stats_only: bool) -> _Answer:
        """Read one path; at most `left` characters may be shown."""
        try:
            cap = 0 if stats_only else min(item.read_cap(), max(0, left))
            options = _ReadOptions(item.read_range(), cap, stats_only)
            return await self._read(item, options)
        except Invalid as bad:
            return _Answer(f"{escape_name(item.path)}: not read ({bad.detail})", failed=True)
        except (NotFound, Unavailable) as error:
            return _Answer(f"{escape_name(item.path)}: its content is currently unavailable ({error})", failed=True)

    async def _read(self, item: ReadItem, options: _ReadOptions) -> _Answer:
        match await self._resolver.find(item.path):
            case Missing(reason=reason):
                return _Answer(f"{escape_name(item.path)}: missing ({reason})", failed=True)
            case FoundText(ref=ref, block=block) if block and options.range.is_whole and self._seen.holds_whole(block):
                return _Answer(
                    f"{escape_name(ref)}: already shown in full in the block with the ref {escape_name(block.ref)}"
                )
            case FoundText(ref=ref, text=text) as found:
                digest, excerpt = await call_sized(len(text), lambda: _hash_and_cut(text, options))
                answer = _answer_text(ref, digest, excerpt, options)
                return self._repeated(ref, digest, options) or replace(answer, untrusted=found.untrusted)
            case FoundDocument() as found:
                return await self._read_document(found, options)
            case FoundStored(ref=ref, whole=whole):
                return await self._read_stored(ref, whole, options)
            case FoundSources() as found:
                return replace(await self._read_sources(found, options), untrusted=True)
            case FoundFile() as found:
                return await self._read_file(found, options)
            case FoundSkill(skill=skill, file=file):
                is_whole = (
                    file is skill.files[INSTRUCTIONS] and options.range.is_whole and item.max_text_symbols is None
                )
                return await self._read_skill(skill, file, options, is_whole=is_whole)

    async def _read_skill(self, skill: Skill, file: SkillFile, options: _ReadOptions, *, is_whole: bool) -> _Answer:
        if not file.is_text:
            how = f'not text: react.pull {{"paths": ["{escape_name(file.ref)}"]}} makes it available to programs'
            return _Answer(f"{escape_name(file.ref)}: {file.size} bytes; {how}")
        if (repeated := self._repeated(file.ref, file.sha256, options)) is not None:
            return repeated
        text = await call_sized(file.size, file.decode)
        note = ""
        if skill.sources and not options.stats_only and file.filename.endswith(".md"):
            # Its sources join the pool of the conversation, where they have other numbers.
            numbers, note = self._claim_sources(skill)
            raw = text
            text = await call_sized(len(raw), lambda: renumber_citations(raw, numbers))
        if not is_whole or options.stats_only:
            excerpt = await call_sized(len(text), lambda: cut_excerpt(text, options.range, options.cap))
            answer = _answer_text(file.ref, file.sha256, excerpt, options)
            return replace(answer, status=f"{answer.status}{note}")
        shown = f"--- {escape_name(file.ref)} ---\n{text}{_describe_skill(skill)}"
        if len(shown) > self._skill_chars_left:
            return _Answer(f"{file.ref}: not shown: this call has no room for it; read it in another one", failed=True)
        self._skill_chars_left -= len(shown)
        status = f"{file.ref}: {len(text)} characters, shown whole{note}"
        return _Answer(status, shown, shown=ShownText(ref=file.ref, digest=file.sha256), is_skill=True)

    def _claim_sources(self, skill: Skill) -> tuple[dict[int, int], str]:
        """The number in the pool for each number in the skill, and what the status says about it."""
        try:
            rows = self._pool.claim(list(skill.sources.values()))
        except PoolFull:
            return {}, "; the source pool is full, so its sources can't be cited"
        numbers = {number: row.sid for number, row in zip(skill.sources, rows, strict=True)}
        return numbers, f"; its sources: {sources_ref(numbers.values())}"

    async def _read_document(self, found: FoundDocument, options: _ReadOptions) -> _Answer:
        if found.first is not None and found.last is not None and options.range.is_whole:
            options = replace(options, range=Range(found.first, found.last - found.first + 1))
        digest, excerpt = await call_sized(len(found.text), lambda: _hash_and_cut(found.text, options))
        answer = _answer_text(found.ref, digest, excerpt, options)
        return self._repeated(found.ref, digest, options) or replace(answer, untrusted=found.untrusted)

    async def _read_file(self, found: FoundFile, options: _ReadOptions) -> _Answer:
        artifact = found.artifact
        described = (
            f"{escape_name(found.ref)}: {artifact.mime}, {artifact.size} bytes, path {escape_name(artifact.path)}"
        )
        if is_media(artifact.mime):
            return self._answer_media(described, found, attach=not options.stats_only)
        if not self._attachments.has_text(artifact):
            return _Answer(f"{described}; not text: open it with a program")
        if not self._attachments.can_read(artifact):
            return _Answer(f"{described}; too large to read here: open it with a program", failed=True)
        if (repeated := self._repeated(found.ref, artifact.sha256, options)) is not None:
            return repeated
        excerpt = await self._attachments.load_excerpt(artifact, options.range, options.cap)
        return _answer_text(found.ref, artifact.sha256, excerpt, options)

    async def _read_stored(self, ref: str, whole: StoredText, options: _ReadOptions) -> _Answer:
        if (repeated := self._repeated(ref, whole.sha256, options)) is not None:
            return repeated
        excerpt = await load_excerpt(self._objects, whole.object_key, whole.bytes, options.range, options.cap)
        return _answer_text(ref, whole.sha256, excerpt, options)

    async def _read_sources(self, found: FoundSources, options: _ReadOptions) -> _Answer:
        rows = [(row, await _load_text(found, row)) for row in found.rows[:MAX_SOURCE_ROWS]]
        absent = f"; no rows {', '.join(map(str, found.absent[:20]))}" if found.absent else ""
        if not options.range.is_whole:
            if len(rows) != 1:
                raise Invalid("parts can be read from only one source at a time")
            text = rows[0][1]
            excerpt = await call_sized(len(text), lambda: cut_excerpt(text, options.range, options.cap))
            return _answer_text(found.ref, "", excerpt, options)
        sizes = ", ".join(f"{row.sid}: {len(text)}" for row, text in rows)
        described = f"{escape_name(found.ref)}: {len(found.rows)} rows, characters of their texts {sizes}{absent}"
        if options.cap <= 0:
            return _Answer(f"{described}; content not shown")
        chars = sum(len(text) for _, text in rows)
        digest = await call_sized(chars, lambda: _hash_rows(rows))
        if (repeated := self._repeated(found.ref, digest, options)) is not None:
            return repeated
        shown, whole = await call_sized(chars, lambda: render_rows(rows, options.cap))
        more = "" if whole else "; cut: to see the rest, read one source at a time, with an offset"
        text = f"--- {escape_name(found.ref)} ---\n{shown}"
        return _Answer(f"{described}{more}", text, shown=ShownText(ref=found.ref, digest=digest, part=not whole))

    def _repeated(self, ref: str, digest: str, options: _ReadOptions) -> _Answer | None:
        """A pointer to an earlier read that shows the same; a part requested by range is always shown."""
        if not options.range.is_whole or options.cap <= 0:
            return None
        where = self._seen.find_read(ref, digest)
        return (
            _Answer(f"{escape_name(ref)}: already shown in full in the result {escape_name(where)}") if where else None
        )

    def _answer_media(self, described: str, found: FoundFile, *, attach: bool) -> _Answer:
        artifact = found.artifact
        cap = max_media_bytes(artifact.mime)
        if artifact.size > cap:
            too_large = f"too large to attach ({cap} bytes at most): open it with a program"
            return _Answer(f"{described}; {too_large}", failed=True)
        if not attach:
            return _Answer(f"{described}; not attached")
        if (where := self._seen.find_media(artifact.sha256)) is not None:
            return _Answer(f"{described}; already attached to the block with the ref {escape_name(where)}")
        attached = describe_media(artifact)
        return _Answer(f"{described}; attached below, if this model can view it", attached=attached)


def _describe_skill(skill: Skill) -> str:
    """What belongs to a skill besides its instructions."""
    lines: list[str] = []
    files = [f"{escape_name(file.ref)} ({file.size} bytes)" for file in skill.files.values()]
    files = [line for line in files if not line.startswith(f"{skill.folder_ref}{INSTRUCTIONS} ")]
    if files:
        more = [f"and {len(files) - SHOWN_SKILL_FILES} more"] if len(files) > SHOWN_SKILL_FILES else []
        lines += ["--- its files ---", *files[:SHOWN_SKILL_FILES], *more]
        lines.append(f"As a program sees them after a react.pull of {skill.folder_ref}: {SKILLS_FOLDER}/{skill.id}/")
    if skill.tools:
        lines.append("--- the tools that it recommends, if they are offered here ---")
        lines += [": ".join(part for part in (tool.id, tool.role, tool.why) if part) for tool in skill.tools]
    return "".join(f"\n{line}" for line in lines)


async def _load_text(found: FoundSources, row: Source) -> str:
    """The whole text; a row without one was not fetched, and its snippet is used."""
    return await found.load_text(row.sid) if row.text_chars else row.text


def _hash_and_cut(text: str, options: _ReadOptions) -> tuple[str, Excerpt]:
    digest = hashlib.sha256(text.encode("utf-8", errors="replace")).hexdigest()
    return digest, cut_excerpt(text, options.range, options.cap)


def _hash_rows(rows: Sequence[tuple[Source, str]]) -> str:
    return hashlib.sha256("\0".join(f"{row.sid}\0{row.url}\0{text}" for row, text in rows).encode()).hexdigest()


def _answer_text(ref: str, digest: str, excerpt: Excerpt, options: _ReadOptions) -> _Answer:
    size = f"{excerpt.chars} characters, {excerpt.lines} lines"
    if options.cap <= 0:
        return _Answer(f"{escape_name(ref)}: {size}; content not shown")
    more = "" if excerpt.next_offset is None else f"; more at offset {excerpt.next_offset}"
    more = more if excerpt.next_line is None else f"; more at line_start {excerpt.next_line}"
    text = f"--- {escape_name(ref)} {excerpt.label} ---\n{excerpt.text}"
    shown = ShownText(ref=ref, digest=digest, part=not excerpt.is_whole)
    return _Answer(f"{escape_name(ref)}: {size}; shown {excerpt.label}{more}", text, shown=shown)


def _build_outcome(answers: Sequence[_Answer]) -> ToolOutcome:
    status = "\n".join(answer.status for answer in answers)
    text = "\n\n".join([status, *(answer.text for answer in answers if answer.text)])
    data: dict[str, object] = {}
    if attached := [answer.attached.model_dump(mode="json") for answer in answers if answer.attached]:
        data["attached"] = attached
    if shown := build_shown_data(answer.shown for answer in answers if answer.shown):
        data["shown"] = shown
    all_failed = all(answer.failed for answer in answers)
    untrusted = any(answer.untrusted for answer in answers)
    return ToolOutcome("error" if all_failed else "ok", text, data=data or None, untrusted=untrusted)
