"""What errors say."""

from everturn.model.problems import problem
from everturn_client.errors import ProblemError, Unreachable


def test_a_problem_says_title_detail_fields_and_status() -> None:
    error = ProblemError(problem("x", "Not acceptable.", 422, "Look again."), fields=("body.text: too long",))

    assert str(error).endswith(" Not acceptable. Look again. body.text: too long (422).")


def test_other_errors_begin_with_their_sentence() -> None:
    assert str(Unreachable("http://x")) == "The server could not be reached. http://x"
