"""What the repositories of the ingress alone name of the tables, as SQLAlchemy sees them. The migrations make them."""

from sqlalchemy import BigInteger, Boolean, Column, DateTime, Double, MetaData, Table, Text

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
    Column("created_at", _MOMENT),
    Column("last_activity_at", _MOMENT),
    Column("touched_at", _MOMENT),
)
turns = Table(
    "turn",
    _METADATA,
    Column("id", Text, primary_key=True),
    Column("conversation_id", Text),
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
