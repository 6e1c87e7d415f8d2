"""What the client takes from the environment; the only place that reads it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DEFAULT_URL = "http://127.0.0.1:8080"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """`url` of the server, `token` to send, `state_dir` for what is remembered, `colour` unless it is unwanted."""

    url: str
    token: str | None
    state_dir: Path
    colour: bool


def load_settings(environ: Mapping[str, str] | None = None) -> ClientSettings:
    """Read EVERTURN_URL, EVERTURN_TOKEN, XDG_STATE_HOME and NO_COLOR."""
    env = os.environ if environ is None else environ
    state_home = env.get("XDG_STATE_HOME", "")
    # The XDG specification says to ignore a relative path.
    root = (
        Path(state_home) if Path(state_home).is_absolute() else Path(env.get("HOME", "~")).expanduser() / ".local/state"
    )
    return ClientSettings(
        url=env.get("EVERTURN_URL") or DEFAULT_URL,
        token=env.get("EVERTURN_TOKEN") or None,
        state_dir=root / "everturn",
        colour=not env.get("NO_COLOR"),
    )
