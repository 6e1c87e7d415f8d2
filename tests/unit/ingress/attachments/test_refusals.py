"""Every reason has one status, and all name the file and its field."""

import pytest

from everturn.core.errors import Unavailable
from ingress.attachments.antivirus import Infected, Unscannable
from ingress.attachments.intake import Refused, TooBig, build_refusal
from ingress.attachments.sniffing import NotAcceptable, NotAccepted
from ingress.attachments.structure.limits import Unsound


@pytest.mark.parametrize(
    ("error", "reason", "status"),
    [
        (TooBig("x"), "size", 413),
        (NotAccepted("x"), "type", 415),
        (NotAcceptable("x"), "content", 422),
        (Infected("x"), "infected", 422),
        (Unscannable("x"), "unscannable", 422),
        (Unsound("x"), "structure", 422),
        (Unavailable("x"), "unavailable", 503),
    ],
)
def test_a_refusal_says_which_file_where_and_why(error: Refused, reason: str, status: int) -> None:
    refusal = build_refusal("a.pdf", "files.2", error)

    said = "The file 'a.pdf' was rejected: x."
    assert (refusal.reason, refusal.problem.status_code, refusal.problem.answer.detail) == (reason, status, said)
    assert list(refusal.problem.errors) == [{"field": "files.2", "message": said}]
    assert ("Retry-After" in (refusal.problem.headers or {})) is (status == 503)
