"""The gate of one action while it is written: its texts are handed out only once the judge has let it pass."""

from chat_proc.channels.action_stream import ActionPiece, ActionStream, ContentText
from chat_proc.channels.actions import ActionRefusal
from chat_proc.channels.fanout.rules import ActionHead, ActionJudge
from everturn.model.llm.decisions import Action, StreamedAnswer


class GatedAction:
    """Used like an ActionStream. Nothing stands before the first action, so its notes need not wait for its tool."""

    def __init__(self, stream: ActionStream, judge: ActionJudge) -> None:
        self._stream = stream
        self._judge = judge
        self._waits = judge.passed > 0
        self._is_judged = False
        self._has_path: bool | None = None
        self._refusal: ActionRefusal | None = None
        self._held: list[ActionPiece] = []

    @property
    def answer(self) -> StreamedAnswer | None:
        """The answer as far as it was handed out."""
        return self._stream.answer if self._is_judged and self._refusal is None else None

    def feed(self, text: str) -> list[ActionPiece]:
        """What `text` adds to what may be shown."""
        return self._let_pass(self._stream.feed(text))

    def finish(self) -> tuple[list[ActionPiece], Action | ActionRefusal]:
        """The channel is over. An action that was not let pass is a refusal, however well it is written."""
        pieces, reading = self._stream.finish()
        shown = self._let_pass(pieces)
        return shown, reading if self._refusal is None or isinstance(reading, ActionRefusal) else self._refusal

    def _let_pass(self, pieces: list[ActionPiece]) -> list[ActionPiece]:
        head = None if self._is_judged else self._stream.head
        if head is not None:
            self._is_judged = True
            self._refusal = self._judge.judge(head)
        if self._refusal is not None:
            return []
        if self._waits and not self._is_judged:
            self._held += pieces
            return []
        passing, self._held = [*self._held, *pieces], []
        return [piece for piece in passing if self._may_show(piece, self._stream.head)]

    def _may_show(self, piece: ActionPiece, head: ActionHead | None) -> bool:
        if not isinstance(piece, ContentText):
            return True
        if self._has_path is None:
            self._has_path = piece.path is not None
            if piece.path is not None and head is not None:
                self._refusal = self._judge.claim_path(head.tool_id, piece.path)
        return self._has_path and self._refusal is None
