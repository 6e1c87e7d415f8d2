"""A worker reports its choices as one line that a process supervisor can read."""

import json

from chat_proc.worker.presence import Readiness


def test_the_line_says_what_was_chosen_and_why() -> None:
    ready = Readiness("offline", "no key is set", "none", "no launcher", "hashed", "chosen", lexical_only=True)

    line = ready.line()

    assert "\n" not in line
    result = json.loads(line)
    assert result["ready"] is True
    assert (result["model"], result["why"]) == ("offline", "no key is set")
    assert (result["sandbox"], result["embedder"], result["lexical_only"]) == ("none", "hashed", True)
