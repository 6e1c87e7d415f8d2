"""What errors say."""

from everturn.core.errors import problem
from everturn_client.errors import ProblemError, Unreachable


def test_a_problem_message_has_title_detail_fields_and_status() -> None:
    error = ProblemError(problem("x", "Not acceptable.", 422, "Look again."), fields=("body.text: too long",))

    assert str(error).endswith(" Not acceptable. Look again. body.text: too long (422).")


def test_a_field_message_does_not_repeat_the_detail() -> None:
    refused = "The file 'e.txt' was rejected: it is infected."
    error = ProblemError(problem("x", "Not acceptable.", 422, refused), fields=(f"files.0: {refused}",))

    assert str(error).endswith(" Not acceptable. files.0: The file 'e.txt' was rejected: it is infected (422).")


def test_other_errors_begin_with_their_sentence() -> None:
    assert str(Unreachable("http://x")) == "The server could not be reached. http://x"
