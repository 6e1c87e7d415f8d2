"""Feedback in Postgres: one judgement of the user for each turn, some of machines, and what they come to."""

from sqlalchemy import Insert, Select, Update, and_, delete, func, select, text, update
from sqlalchemy.dialects.postgresql import insert

from everturn.errors import Conflict, NotFound
from everturn.model.feedback import Feedback, FeedbackTotals, JudgedConversation, Judgements, Period
from everturn.model.identity import Principal
from everturn.model.ids import ConversationId
from everturn.ports.feedback import MAX_MACHINE_JUDGEMENTS, JudgedPosition
from everturn.postgres.database import Connection, Database, Row
from everturn.postgres.statements import fetch_row, fetch_rows
from everturn.postgres.tables import conversations, turns
from everturn.postgres.tables import feedback as table

_OWN_TOTALS = "SELECT * FROM feedback_totals($1, $2, $3)"
_PROJECT_TOTALS = "SELECT * FROM project_feedback_totals($1, $2)"
_OWN_JUDGED = "SELECT * FROM judged_conversations($1, $2, $3, $4, $5, $6)"
_PROJECT_JUDGED = "SELECT * FROM project_judged_conversations($1, $2, $3, $4, $5)"


class PostgresFeedback:
    """A judgement that says something new is fresh again, though a block tells of the one before."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(self, principal: Principal, conversation_id: ConversationId, feedback: Feedback) -> Feedback:
        async with self._database.transaction(principal) as transaction:
            if await fetch_row(transaction, _build_hold(conversation_id, feedback)) is None:
                raise NotFound(feedback.turn_id)
            if feedback.origin == "user":
                await fetch_rows(transaction, _build_touch(conversation_id))
            if feedback.origin == "user" and feedback.reaction is None and not feedback.text:
                clear = delete(table).where(table.c.turn_id == feedback.turn_id, table.c.origin == "user")
                await fetch_rows(transaction, clear)
            else:
                if feedback.origin == "machine":
                    await _check_room(transaction, feedback)
                await fetch_rows(transaction, _build_upsert(principal, conversation_id, feedback))
        return feedback

    async def load_totals(self, principal: Principal, period: Period, *, project: bool) -> FeedbackTotals:
        when = (period.since, period.until)
        async with self._database.transaction(principal, readonly=True) as transaction:
            if project:
                (row,) = await transaction.fetch(_PROJECT_TOTALS, *when)
            else:
                (row,) = await transaction.fetch(_OWN_TOTALS, principal.user_id, *when)
        return _read_totals(row, conversations=row["conversations"])

    async def load_judged(
        self, principal: Principal, period: Period, *, project: bool, limit: int, after: JudgedPosition | None
    ) -> tuple[JudgedConversation, ...]:
        place = (after.last_judged_at, after.conversation_id) if after else (None, None)
        rest = (period.since, period.until, *place, limit)
        async with self._database.transaction(principal, readonly=True) as transaction:
            if project:
                rows = await transaction.fetch(_PROJECT_JUDGED, *rest)
            else:
                rows = await transaction.fetch(_OWN_JUDGED, principal.user_id, *rest)
        return tuple(map(_read_judged, rows))


async def _check_room(transaction: Connection, feedback: Feedback) -> None:
    """Two at once may both take the last place; the bound is for size, not for safety."""
    of_machines = select(func.count()).where(table.c.turn_id == feedback.turn_id, table.c.origin == "machine")
    (row,) = await fetch_rows(transaction, of_machines)
    if row["count_1"] >= MAX_MACHINE_JUDGEMENTS:
        raise Conflict(f"This turn already has {MAX_MACHINE_JUDGEMENTS} entries of machine feedback.")


def _read_totals(row: Row, *, conversations: int) -> FeedbackTotals:
    return FeedbackTotals(
        conversations=conversations,
        turns=row["turns"],
        user=Judgements(row["ok"], row["not_ok"], row["neutral"], row["unrated"]),
        machine=Judgements(row["machine_ok"], row["machine_not_ok"], row["machine_neutral"]),
        machine_confidence=row["machine_confidence"],
    )


def _read_judged(row: Row) -> JudgedConversation:
    return JudgedConversation(
        conversation_id=row["conversation_id"],
        user_id=row["user_id"],
        title=row["title"],
        last_judged_at=row["last_judged_at"],
        totals=_read_totals(row, conversations=1),
    )


def _build_hold(conversation_id: ConversationId, feedback: Feedback) -> Select[tuple[str]]:
    """The turn. Its conversation can't be erased until the commit, else the judgement would belong to nothing."""
    return (
        select(turns.c.id)
        .join(conversations, conversations.c.id == turns.c.conversation_id)
        .where(turns.c.id == feedback.turn_id, turns.c.conversation_id == conversation_id)
        .with_for_update(read=True, key_share=True, of=conversations)
    )


def _build_touch(conversation_id: ConversationId) -> Update:
    """Comes before the row of the judgement: whoever commits a turn locks in this order."""
    return update(conversations).where(conversations.c.id == conversation_id).values(touched_at=func.clock_timestamp())


def _build_upsert(principal: Principal, conversation_id: ConversationId, feedback: Feedback) -> Insert:
    statement = insert(table).values(
        conversation_id=conversation_id,
        tenant=principal.tenant,
        project=principal.project,
        user_id=principal.user_id,
        turn_id=feedback.turn_id,
        origin=feedback.origin,
        reaction=None if feedback.reaction is None else feedback.reaction.value,
        text=feedback.text,
        confidence=feedback.confidence,
        ts=feedback.ts,
    )
    said = statement.excluded
    same = and_(table.c.reaction.is_not_distinct_from(said.reaction), table.c.text == said.text)
    return statement.on_conflict_do_update(
        index_elements=[table.c.turn_id],
        # Spelled out: Postgres can't match the index to a parameter once it plans for all values at once.
        index_where=text("origin = 'user'"),
        set_={
            "reaction": said.reaction,
            "text": said.text,
            "confidence": said.confidence,
            "ts": said.ts,
            "told": and_(table.c.told, same),
        },
    )
