"""The [WORKSPACE] section of one turn: its files as they stand, and the earlier turns that left files, read once."""

from collections.abc import Sequence

import structlog

from chat_proc.agent.open_turn import OpenTurn
from chat_proc.workspace.description import SHOWN_TURNS, describe_workspace
from chat_proc.workspace.history import WorkspaceHistory
from chat_proc.workspace.loading import Owner, load_own
from chat_proc.workspace.local import fold_workspace
from everturn.errors import Unavailable
from everturn.ports.artifacts import WorkspaceTurn

_log = structlog.get_logger(__name__)


class WorkspaceSection:
    """Without a history it tells of this turn only."""

    def __init__(self, history: WorkspaceHistory | None, turn: OpenTurn) -> None:
        self._history = history
        self._turn = turn
        self._turns: Sequence[WorkspaceTurn] | None = None

    async def load_lines(self) -> tuple[str, ...]:
        """The lines as they stand now. When the rows can't be read they say so, and the turn goes on."""
        turn = self._turn
        folded = fold_workspace(turn.turn_blocks, turn.turn_id)
        if self._history is None:
            return describe_workspace(folded, ())
        owner = Owner(turn.lease.principal, turn.lease.conversation_id)
        try:
            workspace = await load_own(self._history, owner, turn.turn_blocks, turn.turn_id)
            if self._turns is None:
                self._turns = await self._history.load_turns(
                    owner.principal, owner.conversation_id, limit=SHOWN_TURNS + 1
                )
        except Unavailable as error:
            _log.warning("workspace_history_unavailable", error=str(error))
            return describe_workspace(folded, None)
        return describe_workspace(workspace, self._turns)
