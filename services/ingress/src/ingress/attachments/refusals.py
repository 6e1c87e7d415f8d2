"""Why a file is refused, as the problem that names it."""

from dataclasses import dataclass
from typing import assert_never

from everturn.errors import Unavailable
from ingress.attachments.antivirus import Infected, Unscannable
from ingress.attachments.sniffing import NotAcceptable, NotAccepted
from ingress.attachments.structure.limits import Unsound
from ingress.errors import ProblemError, too_large, unavailable, unprocessable, unsupported


class TooBig(Exception):
    """The file has more bytes than its type may have (413)."""


Refused = TooBig | NotAccepted | NotAcceptable | Infected | Unscannable | Unsound | Unavailable
REFUSED = (TooBig, NotAccepted, NotAcceptable, Infected, Unscannable, Unsound, Unavailable)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the client is told, and under which of a few names it is counted."""

    reason: str
    problem: ProblemError


def build_refusal(name: str, field: str, error: Refused) -> Refusal:
    """`name` is the file's clean name, `field` where it stood in the request."""
    say = f"The file {name!r} was rejected: {error.detail if isinstance(error, Unavailable) else error}"
    said = say if say.endswith(".") else f"{say}."
    fields = [{"field": field, "message": said}]
    match error:
        case TooBig():
            return Refusal("size", too_large(said, errors=fields))
        case NotAccepted():
            return Refusal("type", unsupported(said, errors=fields))
        case NotAcceptable():
            return Refusal("content", unprocessable(said, errors=fields))
        case Infected():
            return Refusal("infected", unprocessable(said, errors=fields))
        case Unscannable():
            return Refusal("unscannable", unprocessable(said, errors=fields))
        case Unsound():
            return Refusal("structure", unprocessable(said, errors=fields))
        case Unavailable():
            return Refusal("unavailable", unavailable(said, errors=fields))
        case _:
            assert_never(error)
