"""`react.read`: reopens what refs name, in bounded parts, and says for each path first what happened."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from pydantic import BaseModel, ConfigDict, Field, model_validator

from chat_proc.timeline.files import IMAGE_MIMES, AttachedMedia, describe_media, is_media
from chat_proc.tools.context.excerpt import Range, count_lines, cut_excerpt
from chat_proc.tools.context.resolve import FoundFile, FoundText, Missing, Resolver
from chat_proc.tools.file_types import is_text
from everturn.errors import Invalid, NotFound, Unavailable
from everturn.model.artifacts import Artifact
from everturn.model.commits import Effect
from everturn.ports.objects import Objects
from everturn.ports.tool import ToolCall, ToolOutcome, ToolSpec
from everturn.timeline.inert import escape_line

MAX_PATHS = 20
MAX_CHARS = 20_000
"""Of all texts of one call together; with the status lines it stays below what the prompt shows of a result."""
DEFAULT_CHARS = 12_000
MAX_RESULT_CHARS = 2 * MAX_CHARS
"""With the status lines of the most paths."""
MAX_TEXT_BYTES = 10 * 1024 * 1024
MAX_IMAGE_BYTES = 5 * 1024 * 1024
MAX_PDF_BYTES = 10 * 1024 * 1024


class ReadItem(BaseModel):
    """One path, with the part of it that is wanted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(min_length=1, max_length=2048)
    line_start: int | None = Field(default=None, ge=1)
    line_count: int | None = Field(default=None, ge=1)
    offset: int | None = Field(default=None, ge=0)
    max_text_symbols: int | None = Field(default=None, ge=1, le=MAX_CHARS)

    @property
    def range(self) -> Range:
        return Range(self.line_start, self.line_count, self.offset)


class ReadParams(BaseModel):
    """`paths` for whole texts, `items` for parts; `stats_only` leaves the contents out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paths: list[str] = Field(default_factory=lambda: [])
    items: list[ReadItem] = Field(default_factory=lambda: [])
    stats_only: bool = False

    @model_validator(mode="after")
    def check_number(self) -> "ReadParams":
        if not 0 < len(self.paths) + len(self.items) <= MAX_PATHS:
            raise ValueError(f"give 1 to {MAX_PATHS} paths or items")
        return self

    def wanted(self) -> list[ReadItem]:
        """All that is to be read, each path with the same range once."""
        return list(dict.fromkeys([*(ReadItem(path=path) for path in self.paths), *self.items]))


@dataclass(frozen=True, slots=True)
class _Answer:
    """What came of one path: a status line, perhaps a text, perhaps a file for the model to look at."""

    status: str
    text: str = ""
    attached: AttachedMedia | None = None
    failed: bool = False


class ReadTool:
    """Reads the timeline from memory and files from the object store."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.spec = ToolSpec(
            tool_id="react.read",
            summary="Read prompts, answers, notes, plans, tool calls, results and files of this conversation by ref.",
            guide=files("chat_proc.tools.context").joinpath("read.md").read_text(encoding="utf-8"),
            params=ReadParams,
            effect=Effect.PURE,
            strategy="exploration",
            result_chars=MAX_RESULT_CHARS,
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        params = ReadParams.model_validate(call.params)
        context = call.context
        resolver = Resolver(context.blocks, context.conversation_id, context.turn_id)
        answers: list[_Answer] = []
        left = MAX_CHARS
        for item in params.wanted():
            answer = await self._read(resolver, item, 0 if params.stats_only else left)
            left -= len(answer.text)
            answers.append(answer)
        return _build_outcome(answers)

    async def _read(self, resolver: Resolver, item: ReadItem, left: int) -> _Answer:
        """`left` characters may be shown; 0 asks for the status only."""
        match resolver.find(item.path):
            case Missing(reason=reason):
                return _Answer(f"{_shown(item.path)}: missing ({reason})", failed=True)
            case FoundText(ref=ref, shown_whole=True) if item.range.is_whole:
                return _Answer(f"{_shown(ref)}: visible already, whole, in the block with this ref")
            case FoundText(ref=ref, text=text):
                return _answer_text(ref, text, item, left)
            case FoundFile(ref=ref, artifact=artifact):
                return await self._read_file(ref, artifact, item, left)

    async def _read_file(self, ref: str, artifact: Artifact, item: ReadItem, left: int) -> _Answer:
        described = f"{_shown(ref)}: {artifact.mime}, {artifact.size} bytes, path {_shown(artifact.path)}"
        if is_media(artifact.mime):
            return _answer_media(described, artifact, attach=left > 0)
        if not is_text(artifact.mime):
            return _Answer(f"{described}; not a text: open it with a program")
        if artifact.size > MAX_TEXT_BYTES:
            return _Answer(f"{described}; too large to read here: open it with a program", failed=True)
        try:
            data = await self._objects.load(artifact.object_key, max_bytes=MAX_TEXT_BYTES)
        except (NotFound, Unavailable, Invalid) as error:
            return _Answer(f"{described}; its content can't be had now: {error}", failed=True)
        return _answer_text(ref, data.decode("utf-8-sig", errors="replace"), item, left)


def _answer_text(ref: str, text: str, item: ReadItem, left: int) -> _Answer:
    size = f"{len(text)} characters, {count_lines(text)} lines"
    cap = min(item.max_text_symbols or DEFAULT_CHARS, left)
    if cap <= 0:
        return _Answer(f"{_shown(ref)}: {size}; content not shown")
    excerpt = cut_excerpt(text, item.range, cap)
    more = "" if excerpt.next_offset is None else f"; more at offset {excerpt.next_offset}"
    shown = f"--- {_shown(ref)} {excerpt.label} ---\n{excerpt.text}"
    return _Answer(f"{_shown(ref)}: {size}; shown {excerpt.label}{more}", shown)


def _answer_media(described: str, artifact: Artifact, *, attach: bool) -> _Answer:
    cap = MAX_IMAGE_BYTES if artifact.mime in IMAGE_MIMES else MAX_PDF_BYTES
    if artifact.size > cap:
        return _Answer(f"{described}; too large to attach ({cap} bytes at most): open it with a program", failed=True)
    if not attach:
        return _Answer(f"{described}; not attached")
    return _Answer(f"{described}; attached below, if this model can look at it", attached=describe_media(artifact))


def _build_outcome(answers: Sequence[_Answer]) -> ToolOutcome:
    status = "\n".join(answer.status for answer in answers)
    text = "\n\n".join([status, *(answer.text for answer in answers if answer.text)])
    attached = [answer.attached.model_dump(mode="json") for answer in answers if answer.attached]
    all_failed = all(answer.failed for answer in answers)
    return ToolOutcome("error" if all_failed else "ok", text, data={"attached": attached} if attached else None)


def _shown(text: str) -> str:
    return escape_line(text if len(text) <= 300 else text[:300] + "...")
