"""What a worker tells of itself is one line that a supervisor of processes can read."""

import json

from chat_proc.worker.presence import Readiness


def test_the_line_says_what_was_chosen_and_why() -> None:
    ready = Readiness("offline", "no key is set", "none", "no launcher", "hashed", "chosen", lexical_only=True)

    line = ready.line()

    assert "\n" not in line
    told = json.loads(line)
    assert told["ready"] is True
    assert (told["model"], told["why"]) == ("offline", "no key is set")
    assert (told["sandbox"], told["embedder"], told["lexical_only"]) == ("none", "hashed", True)
