"""Exporting a conversation: its lines, read page by page while the client takes them."""

from collections.abc import AsyncGenerator

import structlog

from everturn.errors import EverturnError, NotFound
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId
from everturn.ports.life.exports import Exports, Section
from everturn.timeline.export_lines import ExportWriter
from everturn.wire.export import BlockLine, BrokenLine, HeaderLine

_log = structlog.get_logger(__name__)


class ExportService:
    """Holds one page of a conversation in memory, never all of it."""

    def __init__(self, exports: Exports) -> None:
        self._exports = exports

    async def load_header(self, principal: Principal, conversation_id: ConversationId) -> HeaderLine:
        """What the export begins with. Raises NotFound."""
        return await self._exports.load_header(principal, conversation_id)

    async def render(self, principal: Principal, header: HeaderLine) -> AsyncGenerator[bytes]:
        """The file in pieces. Where it can't be read to its end the last line says so: the status is sent already."""
        writer = ExportWriter()
        yield writer.render(header)
        try:
            async for piece in self._render_rows(principal, header, writer):
                yield piece
        except _Erased as erased:
            yield writer.render(BrokenLine(detail=str(erased)))
            return
        except EverturnError as error:
            _log.warning("export broke off", conversation_id=header.conversation_id, error=str(error))
            yield writer.render(BrokenLine(detail="The rows could not be read. Try again."))
            return
        yield writer.render_end()

    async def _render_rows(
        self, principal: Principal, header: HeaderLine, writer: ExportWriter
    ) -> AsyncGenerator[bytes]:
        conversation_id = ConversationId(header.conversation_id)
        last: BlockLine | None = None
        while (last.seq if last else 0) < header.blocks:
            page = await self._exports.load_blocks(principal, conversation_id, after=last, last_seq=header.blocks)
            if not page:
                raise _Erased()
            yield b"".join(writer.render(line) for line in page)
            last = page[-1]
        for section in Section:
            after = ""
            while (rows := await self._exports.load_page(principal, conversation_id, section, after=after)).lines:
                yield b"".join(writer.render(line) for line in rows.lines)
                after = rows.after
        # Pages of what is gone are empty, as those behind the last row are.
        try:
            await self._exports.load_header(principal, conversation_id)
        except NotFound as error:
            raise _Erased() from error


class _Erased(EverturnError):
    """The conversation was erased while it was exported."""
