"""The first messages that an agent suggests."""


def is_incomplete(starter: str) -> bool:
    """Whether it is only the beginning of a message, which the person completes."""
    return starter.rstrip().endswith(("…", "...", ":"))
