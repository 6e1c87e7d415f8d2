"""A tool for the examples of docs/api.md: it only says that it sent something."""


def send(to: str, text: str) -> str:
    """Sends a mail."""
    return f"Sent to {to}: {text}"
