"""Follows brackets and strings of JSON text that arrives in pieces, just enough to know where a value is complete."""

import re

_VALUE_START = re.compile(r"[{\[]")
_STRUCTURE = re.compile(r'["{}\[\]]')
_STRING_RUN = re.compile(r'(?>(?:[^"\\]++|\\.)*)', re.DOTALL)


class JsonDepth:
    """Where the text read so far stands. Only `advance` changes it. Quotes count only inside an object or an array."""

    __slots__ = ("_after_backslash", "_in_string", "deepest", "depth")

    def __init__(self) -> None:
        self.depth = 0
        self.deepest = 0
        self._in_string = False
        self._after_backslash = False

    def advance(self, text: str) -> int:
        """Read `text`; returns how many of its characters end the first value that became complete, or -1."""
        if self._in_string and not self._after_backslash and '"' not in text and "\\" not in text:
            return -1
        completed_at = -1
        position = 0
        while position < len(text):
            if self._in_string:
                position = self._leave_string(text, position)
                continue
            found = (_STRUCTURE if self.depth else _VALUE_START).search(text, position)
            if found is None:
                break
            position = found.end()
            self._enter(found[0])
            if self.depth == 0 and completed_at < 0:
                completed_at = position
        return completed_at

    def _enter(self, bracket: str) -> None:
        if bracket == '"':
            self._in_string = True
        else:
            self.depth += 1 if bracket in "{[" else -1
            self.deepest = max(self.deepest, self.depth)

    def _leave_string(self, text: str, position: int) -> int:
        if self._after_backslash:
            self._after_backslash = False
            return position + 1
        run = _STRING_RUN.match(text, position)
        stop = run.end() if run else position
        if stop < len(text):
            self._in_string = text[stop] != '"'
            self._after_backslash = self._in_string
        return stop + 1
