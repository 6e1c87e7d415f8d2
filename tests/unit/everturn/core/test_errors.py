"""An error's docstring is its message."""

from everturn.core.errors import EverturnError, NotFound


def test_the_docstring_is_the_message_and_the_detail_follows() -> None:
    assert str(NotFound()) == "It does not exist for this caller."
    assert str(NotFound("conv_1")) == "It does not exist for this caller. conv_1"
    assert NotFound("conv_1").detail == "conv_1"


def test_every_error_of_ours_has_one_root() -> None:
    assert issubclass(NotFound, EverturnError)
