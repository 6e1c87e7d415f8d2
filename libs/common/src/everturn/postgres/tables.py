"""The tables that reading and CRUD repositories name, as SQLAlchemy sees them. The migrations make them."""

from sqlalchemy import BigInteger, Boolean, Column, DateTime, Double, Integer, MetaData, Table, Text

_METADATA = MetaData()
_MOMENT = DateTime(timezone=True)


def _owned() -> tuple[Column[str], ...]:
    return Column("tenant", Text), Column("project", Text), Column("user_id", Text)


conversations = Table(
    "conversation",
    _METADATA,
    Column("id", Text, primary_key=True),
    *_owned(),
    Column("bundle_id", Text),
    Column("title", Text),
    Column("state", Text),
    Column("archived", Boolean),
    Column("event_cursor", Text),
    Column("created_at", _MOMENT),
    Column("last_activity_at", _MOMENT),
)
turns = Table(
    "turn",
    _METADATA,
    Column("id", Text, primary_key=True),
    Column("conversation_id", Text),
    Column("ordinal", Integer),
    Column("first_seq", BigInteger),
    Column("status", Text),
    Column("attempt", Integer),
    Column("request", Text),
    Column("outcome", Text),
    Column("usage", Text),
    Column("error", Text),
    Column("created_at", _MOMENT),
    Column("started_at", _MOMENT),
    Column("ended_at", _MOMENT),
)
blocks = Table(
    "block",
    _METADATA,
    Column("conversation_id", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("turn_id", Text),
    Column("round", Integer),
    Column("type", Text),
    Column("ref", Text),
    Column("call_id", Text),
    Column("body", Text),
    Column("ts", Text),
    Column("ts_first", Text),
    Column("hash", Text),
)
signals = Table(
    "signal",
    _METADATA,
    Column("id", Text, primary_key=True),
    Column("conversation_id", Text),
    Column("turn_id", Text),
    Column("inbox_seq", BigInteger),
    Column("kind", Text),
    Column("payload", Text),
    Column("state", Text),
    Column("round", Integer),
    Column("promoted_to", Text),
    Column("created_at", _MOMENT),
)
feedback = Table(
    "feedback",
    _METADATA,
    Column("id", BigInteger, primary_key=True),
    Column("conversation_id", Text),
    *_owned(),
    Column("turn_id", Text),
    Column("origin", Text),
    Column("reaction", Text),
    Column("text", Text),
    Column("confidence", Double),
    Column("ts", _MOMENT),
    Column("told", Boolean),
)
