"""Feedback in Postgres: one rating of the user for each turn, some of machines, and their totals."""

from everturn.core.errors import Conflict, NotFound
from everturn.core.identity import Principal
from everturn.core.ids import ConversationId
from everturn.feedback.model import (
    MAX_MACHINE_JUDGEMENTS,
    ConversationFeedback,
    Feedback,
    FeedbackPosition,
    FeedbackTotals,
    Judgements,
    Period,
    Reaction,
)
from everturn.postgres.pool import Connection, Database, Row, replace_nul

FEEDBACK_COLUMNS = "turn_id, origin, reaction, text, confidence, ts"
"""What `read_feedback` reads."""
_HOLD = """
SELECT turn.id
  FROM turn JOIN conversation ON conversation.id = turn.conversation_id
 WHERE turn.id = $1 AND turn.conversation_id = $2
   FOR KEY SHARE OF conversation
"""
"""The turn. Its conversation can't be erased until the commit; otherwise the rating would belong to nothing."""
_TOUCH = "UPDATE conversation SET touched_at = clock_timestamp() WHERE id = $1"
"""Runs before the row of the rating is written: the commit of a turn locks in this order."""
_CLEAR = "DELETE FROM feedback WHERE turn_id = $1 AND origin = 'user'"
_COUNT_MACHINE = "SELECT count(*) FROM feedback WHERE turn_id = $1 AND origin = 'machine'"
# The condition of the index on users' ratings is written literally: with a generic plan, Postgres can't match it to a
# parameter.
_UPSERT = """
INSERT INTO feedback (conversation_id, tenant, project, user_id, turn_id, origin, reaction, text, confidence, ts)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
    ON CONFLICT (turn_id) WHERE origin = 'user' DO UPDATE
   SET reaction = excluded.reaction, text = excluded.text, confidence = excluded.confidence, ts = excluded.ts,
       told = feedback.told
          AND feedback.reaction IS NOT DISTINCT FROM excluded.reaction
          AND feedback.text = excluded.text
"""
_OWN_TOTALS = "SELECT * FROM feedback_totals($1, $2, $3)"
_PROJECT_TOTALS = "SELECT * FROM project_feedback_totals($1, $2)"
_OWN_JUDGED = "SELECT * FROM judged_conversations($1, $2, $3, $4, $5, $6)"
_PROJECT_JUDGED = "SELECT * FROM project_judged_conversations($1, $2, $3, $4, $5)"


class PostgresFeedback:
    """A changed rating counts as not shown to the model, even if a block contains the previous one."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(self, principal: Principal, conversation_id: ConversationId, feedback: Feedback) -> Feedback:
        async with self._database.transaction(principal) as transaction:
            if await transaction.fetchrow(_HOLD, feedback.turn_id, conversation_id) is None:
                raise NotFound(feedback.turn_id)
            if feedback.origin == "user":
                await transaction.execute(_TOUCH, conversation_id)
            if feedback.origin == "user" and feedback.reaction is None and not feedback.text:
                await transaction.execute(_CLEAR, feedback.turn_id)
            else:
                if feedback.origin == "machine":
                    await _check_room(transaction, feedback)
                await transaction.execute(_UPSERT, *build_feedback_row(principal, conversation_id, feedback))
        return feedback

    async def load_totals(self, principal: Principal, period: Period, *, project: bool) -> FeedbackTotals:
        when = (period.since, period.until)
        async with self._database.transaction(principal, readonly=True) as transaction:
            if project:
                (row,) = await transaction.fetch(_PROJECT_TOTALS, *when)
            else:
                (row,) = await transaction.fetch(_OWN_TOTALS, principal.user_id, *when)
        return _read_totals(row, conversations=row["conversations"])

    async def load_conversations(
        self, principal: Principal, period: Period, *, project: bool, limit: int, after: FeedbackPosition | None
    ) -> tuple[ConversationFeedback, ...]:
        place = (after.last_feedback_at, after.conversation_id) if after else (None, None)
        rest = (period.since, period.until, *place, limit)
        async with self._database.transaction(principal, readonly=True) as transaction:
            if project:
                rows = await transaction.fetch(_PROJECT_JUDGED, *rest)
            else:
                rows = await transaction.fetch(_OWN_JUDGED, principal.user_id, *rest)
        return tuple(map(_read_conversation, rows))


async def _check_room(transaction: Connection, feedback: Feedback) -> None:
    """Raises Conflict. Two concurrent calls can both pass: the limit bounds the size, roughly."""
    if await transaction.fetchval(_COUNT_MACHINE, feedback.turn_id) >= MAX_MACHINE_JUDGEMENTS:
        raise Conflict(f"This turn already has {MAX_MACHINE_JUDGEMENTS} entries of machine feedback.")


def _read_totals(row: Row, *, conversations: int) -> FeedbackTotals:
    return FeedbackTotals(
        conversations=conversations,
        turns=row["turns"],
        user=Judgements(row["ok"], row["not_ok"], row["neutral"], row["unrated"]),
        machine=Judgements(row["machine_ok"], row["machine_not_ok"], row["machine_neutral"]),
        machine_confidence=row["machine_confidence"],
    )


def _read_conversation(row: Row) -> ConversationFeedback:
    return ConversationFeedback(
        conversation_id=row["conversation_id"],
        user_id=row["user_id"],
        title=row["title"],
        last_feedback_at=row["last_judged_at"],
        totals=_read_totals(row, conversations=1),
    )


def build_feedback_row(principal: Principal, conversation_id: ConversationId, feedback: Feedback) -> tuple[object, ...]:
    """The values of a new row, from `conversation_id` to `ts`."""
    return (
        conversation_id,
        principal.tenant,
        principal.project,
        principal.user_id,
        feedback.turn_id,
        feedback.origin,
        None if feedback.reaction is None else feedback.reaction.value,
        replace_nul(feedback.text),
        feedback.confidence,
        feedback.ts,
    )


def read_feedback(row: Row) -> Feedback:
    return Feedback(
        turn_id=row["turn_id"],
        origin=row["origin"],
        reaction=None if row["reaction"] is None else Reaction(row["reaction"]),
        text=row["text"],
        ts=row["ts"],
        confidence=row["confidence"],
    )
