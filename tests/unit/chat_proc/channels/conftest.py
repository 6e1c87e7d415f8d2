"""Measures work without a clock."""

import inspect
import sys
from collections.abc import Callable
from types import FrameType

import pytest

CountCharacters = Callable[[Callable[[], object]], int]


@pytest.fixture
def count_characters() -> CountCharacters:
    """Runs a call and counts the characters that are handed to functions of the channels package while it runs.

    A reader that looks at its text again and again hands it to its functions again and again. Functions that take a
    place in the text read on from there, so they are not counted.
    """

    def count(call: Callable[[], object]) -> int:
        total = 0

        def on_call(frame: FrameType, event: str, _argument: object) -> None:
            nonlocal total
            resumed = frame.f_code.co_flags & inspect.CO_GENERATOR
            if event == "call" and not resumed and "chat_proc/channels" in frame.f_code.co_filename:
                names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
                if "start" not in names and "position" not in names:
                    total += sum(len(value) for name in names if isinstance(value := frame.f_locals.get(name), str))

        sys.setprofile(on_call)
        try:
            call()
        finally:
            sys.setprofile(None)
        return total

    return count
