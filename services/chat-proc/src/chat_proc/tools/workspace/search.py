"""`react.search_files` and `react.rg`: find local files by name and by content."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from chat_proc.attachments.charsets import TextDecoder
from chat_proc.attachments.policy import is_text
from chat_proc.catalog.tool import ToolCall, ToolOutcome, ToolSpec
from chat_proc.tools.stored_files import load_local
from chat_proc.workspace.loading import WorkspaceHistory
from chat_proc.workspace.local import LocalFile, Selection, select_files
from chat_proc.workspace.naming import render_result
from chat_proc.workspace.text_search import Match, Pattern, Searched, search_text
from everturn.core.errors import EverturnError, Invalid
from everturn.files.objects import Objects
from everturn.skills.model import SkillFile
from everturn.turns.model import Effect

MAX_LISTED = 500

MAX_FILE_BYTES = 10 * 1024 * 1024
"""Searched bytes of one file, from its beginning; also the limit of a read as text."""
MAX_SCANNED_BYTES = 64 * 1024 * 1024
"""Searched bytes per call."""
LIMIT_S = 20.0
"""After this time the call ends with the matches so far."""
MAX_HITS = 1_000
READ_AROUND = 5
"""Lines before and after a match in its ready-to-use read."""


class SearchFilesParams(BaseModel):
    """`prefix` is a folder or file, `name_regex` is searched in file names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prefix: str = Field(default="", max_length=2048)
    name_regex: str | None = Field(default=None, max_length=1000)


class SearchFilesTool:
    """Reads rows, never contents."""

    def __init__(self, history: WorkspaceHistory) -> None:
        self._history = history
        self.spec = ToolSpec(
            tool_id="react.search_files",
            summary="List the files that are local in this turn, with sizes and refs.",
            guide=files("chat_proc.tools.workspace").joinpath("search_files.md").read_text(encoding="utf-8"),
            params=SearchFilesParams,
            effect=Effect.PURE,
            strategy="exploration",
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        params, context = SearchFilesParams.model_validate(call.params), call.context
        try:
            pattern = Pattern(params.name_regex) if params.name_regex else None
            workspace = await load_local(self._history, context)
            selection = select_files(workspace, params.prefix, context.conversation_id)
        except Invalid as invalid:
            return ToolOutcome("error", render_result({"prefix": params.prefix, "error": invalid.detail}))
        found = [file for file in selection.files if pattern is None or pattern.find(file.artifact.filename)]
        notices = list(selection.notices)
        if len(found) > MAX_LISTED:
            notices.append(f"{MAX_LISTED} of {len(found)} files are listed; name a folder or a name_regex.")
        result = {
            "prefix": params.prefix,
            "file_count": len(found),
            "total_bytes": sum(file.artifact.size for file in found),
            "files": [_describe_found(file) for file in found[:MAX_LISTED]],
            "notices": notices,
        }
        return ToolOutcome("ok", render_result(result))


def _describe_found(file: LocalFile) -> dict[str, Any]:
    described: dict[str, Any] = {
        "path": file.path,
        "logical_path": file.ref,
        "size_bytes": file.artifact.size,
        "mime": file.artifact.mime,
    }
    if file.origin != "own":
        described["read_only"] = file.origin
    if file.checked_out_from:
        described["checked_out_from"] = file.checked_out_from
        described["modified"] = file.changed
    return described


class RgParams(BaseModel):
    """`name_regex` is searched in file names, `pattern` in each line of texts; at least one of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: str = Field(default="", max_length=2048)
    name_regex: str | None = Field(default=None, max_length=1000)
    pattern: str | None = Field(default=None, max_length=1000)
    context_lines: int = Field(default=0, ge=0, le=20)
    max_matches: int = Field(default=200, ge=1, le=MAX_HITS)
    max_files: int = Field(default=200, ge=1, le=MAX_HITS)

    @model_validator(mode="after")
    def check_has_criteria(self) -> "RgParams":
        if not self.name_regex and not self.pattern:
            raise ValueError("pass a pattern, a name_regex or both")
        return self


@dataclass(slots=True)
class _Search:
    """The state of one call. `hits` are the files found so far."""

    params: RgParams
    pattern: Pattern | None
    is_late: Callable[[], bool]
    hits: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    match_count: int = 0
    scanned_files: int = 0
    scanned_bytes: int = 0
    binary: int = 0
    cut: list[str] = field(default_factory=list[str])
    unreadable: list[str] = field(default_factory=list[str])
    stopped: str | None = None

    @property
    def matches_left(self) -> int:
        return self.params.max_matches - self.match_count


class RgTool:
    """Searches local files one after another, off the event loop."""

    def __init__(
        self, history: WorkspaceHistory, objects: Objects, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._history = history
        self._objects = objects
        self._monotonic = monotonic
        self.spec = ToolSpec(
            tool_id="react.rg",
            summary="Search local files by name and content, with regular expressions.",
            guide=files("chat_proc.tools.workspace").joinpath("rg.md").read_text(encoding="utf-8"),
            params=RgParams,
            effect=Effect.PURE,
            strategy="exploration",
        )

    async def run(self, call: ToolCall) -> ToolOutcome:
        params, context = RgParams.model_validate(call.params), call.context
        ends = self._monotonic() + LIMIT_S
        try:
            names = Pattern(params.name_regex) if params.name_regex else None
            search = _Search(
                params, Pattern(params.pattern) if params.pattern else None, lambda: self._monotonic() > ends
            )
            workspace = await load_local(self._history, context)
            selection = select_files(workspace, params.root, context.conversation_id)
        except Invalid as invalid:
            return ToolOutcome("error", render_result({"root": params.root, "error": invalid.detail}))
        for file in selection.files:
            if names is not None and names.find(file.artifact.filename) is None:
                continue
            if _is_full(search):
                break
            await self._search(file, search)
        return ToolOutcome("ok", await asyncio.to_thread(render_result, _build_result(search, selection)))

    async def _search(self, file: LocalFile, search: _Search) -> None:
        if search.pattern is None:
            search.hits.append(_describe_hit(file))
            return
        if not is_text(file.artifact.mime):
            search.binary += 1
            return
        end = min(file.artifact.size, MAX_FILE_BYTES, MAX_SCANNED_BYTES - search.scanned_bytes)
        try:
            chunks = await self._load(file, end)
        except EverturnError as error:
            search.unreadable.append(f"{file.path} ({error})")
            return
        search.scanned_files += 1
        search.scanned_bytes += sum(map(len, chunks))
        found = await asyncio.to_thread(_search_chunks, chunks, file.artifact.mime, search, search.pattern)
        if found is None:
            search.binary += 1
            return
        if end < file.artifact.size:
            search.cut.append(file.path)
        _add_matches(search, file, *found)

    async def _load(self, file: LocalFile, end: int) -> list[bytes]:
        """The first `end` bytes. Raises NotFound, Unavailable."""
        if isinstance(file.artifact, SkillFile):
            return [file.artifact.data[:end]]
        return [chunk async for chunk in self._objects.load_range(file.artifact.object_key, start=0, end=end)]


def _is_full(search: _Search) -> bool:
    """Whether a limit is reached; then sets `stopped` to a sentence about it."""
    if search.stopped is None:
        if len(search.hits) >= search.params.max_files:
            search.stopped = f"The limit max_files={search.params.max_files} is reached; there may be more files."
        elif search.scanned_bytes >= MAX_SCANNED_BYTES:
            search.stopped = f"The limit of {MAX_SCANNED_BYTES} searched bytes is reached; name a smaller root."
        elif search.matches_left <= 0:
            search.stopped = f"The limit max_matches={search.params.max_matches} is reached; there may be more matches."
    return search.stopped is not None


def _search_chunks(
    chunks: Iterable[bytes], mime: str, search: _Search, pattern: Pattern
) -> tuple[int, Searched] | None:
    """The length of the text and its matches; None if it is binary. Runs in a thread: 10 MB take up to 100 ms.

    Chunks are decoded one by one, because a decoder holds the GIL for as long as it runs.
    """
    decoder = TextDecoder(mime)
    parts = [decoder.decode(chunk) for chunk in chunks]
    text = "".join((*parts, decoder.decode(b"", final=True)))
    if "\x00" in text:
        return None
    found = search_text(
        text,
        pattern,
        context_lines=search.params.context_lines,
        max_matches=search.matches_left,
        is_late=search.is_late,
    )
    return len(text), found


def _add_matches(search: _Search, file: LocalFile, text_symbols: int, found: Searched) -> None:
    if found.stopped:
        search.stopped = f"The search was stopped after {LIMIT_S:g} s; name a smaller root."
    elif found.more:
        search.stopped = f"The limit max_matches={search.params.max_matches} is reached; there are more matches."
    if not found.matches:
        return
    search.match_count += len(found.matches)
    hit = _describe_hit(file) | {"text_symbols": text_symbols, "line_count": found.line_count}
    search.hits.append(hit | {"matches": [_describe_match(file, match, found) for match in found.matches]})


def _describe_hit(file: LocalFile) -> dict[str, Any]:
    return {"path": file.path, "logical_path": file.ref, "size_bytes": file.artifact.size}


def _describe_match(file: LocalFile, match: Match, found: Searched) -> dict[str, Any]:
    start = max(1, match.line - READ_AROUND)
    count = min(found.line_count, match.line + READ_AROUND) - start + 1
    described: dict[str, Any] = {"line": match.line, "preview": match.preview}
    if match.context:
        described["context_lines"] = [{"line": number, "text": text} for number, text in match.context]
    return described | {"read_item": {"path": file.ref, "line_start": start, "line_count": count}}


def _build_result(search: _Search, selection: Selection) -> dict[str, Any]:
    notices = [*selection.notices, *([search.stopped] if search.stopped else [])]
    if search.binary:
        notices.append(f"{search.binary} binary files were not searched; a program can open them.")
    notices += [f"Only the first {MAX_FILE_BYTES} bytes of {path} were searched." for path in search.cut[:5]]
    notices += [f"Not readable now: {path}" for path in search.unreadable[:5]]
    return {
        "root": search.params.root,
        "hits": search.hits,
        "hit_count": len(search.hits),
        "match_count": search.match_count if search.pattern else None,
        "looked_at": len(selection.files),
        "scanned_files": search.scanned_files if search.pattern else None,
        "notices": notices,
    }
