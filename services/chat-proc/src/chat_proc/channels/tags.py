"""The channel tags of one protocol: finding whole ones, and telling whether the end of a text may still become one."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

_BEGINNING = re.compile(r"</?(?:[cC]|$)")

Body = Literal["prose", "code", "json"]


@dataclass(frozen=True, slots=True)
class ChannelSyntax:
    """How one channel is written. `body` decides which tags inside it count; `aliases` are other names of it."""

    name: str
    body: Body = "prose"
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tag:
    """One whole tag at `start` of the text it was found in; `text` is how the model wrote it."""

    channel: str
    opens: bool
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class TagTable:
    """Finds `<channel:NAME>` and `</channel:NAME>` of the declared channels; letter case does not matter, blanks do."""

    def __init__(self, channels: Iterable[ChannelSyntax]) -> None:
        self.bodies: dict[str, Body] = {}
        self._names: dict[str, str] = {}
        for channel in channels:
            self._declare(channel)
        if not self._names:
            raise ValueError("no channel is declared")
        self._pattern = re.compile(
            "<(/?)channel:(" + "|".join(re.escape(name) for name in self._names) + ")>", re.IGNORECASE | re.ASCII
        )
        tags = [f"<{slash}channel:{name}>" for name in self._names for slash in ("", "/")]
        self._beginnings = frozenset(tag[:length] for tag in tags for length in range(1, len(tag)))
        self._longest_beginning = max(map(len, tags)) - 1

    def try_find(self, text: str, start: int = 0) -> Tag | None:
        """The first whole tag of `text` from `start` on."""
        found = self._pattern.search(text, start)
        if found is None:
            return None
        return Tag(self._names[found[2].lower()], not found[1], found[0], found.start())

    def may_occur_in(self, text: str) -> bool:
        """Whether a tag or the beginning of one may be in `text`. False is sure, and quick to find out."""
        return _BEGINNING.search(text) is not None

    def settled_chars(self, text: str) -> int:
        """How many characters of `text` no continuation can turn into part of a tag that is not whole yet."""
        last = text.rfind("<", max(0, len(text) - self._longest_beginning))
        if last >= 0 and text[last:].lower() in self._beginnings:
            return last
        return len(text)

    def _declare(self, channel: ChannelSyntax) -> None:
        self.bodies[channel.name] = channel.body
        for written in (channel.name, *channel.aliases):
            lowered = written.lower()
            if not re.fullmatch(r"[a-z0-9_-]+", lowered) or lowered in self._names:
                raise ValueError(f"channel name {written!r} is malformed or declared twice")
            self._names[lowered] = channel.name
