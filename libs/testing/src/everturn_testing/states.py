"""Comparing the state that a client folded with what REST reads."""

from everturn.events.views import StateView, TurnView


def comparable_state(state: StateView) -> StateView:
    """The state without fields that no event contains: cursors, last activity, archiving and feedback."""
    return state.model_copy(
        update={
            "conversation": state.conversation.model_copy(update={"last_activity_at": "", "archived": False}),
            "turns": tuple(_comparable_turn(turn) for turn in state.turns),
            "cursor": "",
            "next_cursor": None,
        }
    )


def _comparable_turn(turn: TurnView) -> TurnView:
    counts = {"sealed_round": 0, "rounds": 0} if turn.status in ("queued", "running", "waiting") else {}
    return turn.model_copy(update={"feedback": (), **counts})
