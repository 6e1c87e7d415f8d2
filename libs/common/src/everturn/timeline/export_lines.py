"""Writing an export: each line ends with a hash over itself and the line before it. Pure."""

import hashlib

from everturn.model.blocks import GENESIS_HASH
from everturn.wire.export import ArtifactLine, BlockLine, EndLine, ExportLine, FeedbackLine, SignalLine


class ExportWriter:
    """Makes the bytes of one line after the other, and counts them."""

    def __init__(self) -> None:
        self._chain = GENESIS_HASH
        self._last_hash = GENESIS_HASH
        self._counts: dict[str, int] = dict.fromkeys(("block", "artifact", "signal", "feedback"), 0)

    def render(self, line: ExportLine) -> bytes:
        """The line as it stands in the file, with its line break."""
        match line:
            case BlockLine():
                self._last_hash = line.hash
                self._counts[line.line] += 1
            case ArtifactLine() | SignalLine() | FeedbackLine():
                self._counts[line.line] += 1
            case _:
                """Header and end are counted by nobody."""
        text = line.model_dump_json().removesuffix("}")
        self._chain = chain_line(self._chain, text.encode())
        return f'{text},"chain":"{self._chain}"}}\n'.encode()

    def render_end(self) -> bytes:
        """The end line: what was rendered so far."""
        return self.render(
            EndLine(
                blocks=self._counts["block"],
                artifacts=self._counts["artifact"],
                signals=self._counts["signal"],
                feedback=self._counts["feedback"],
                last_hash=self._last_hash,
            )
        )


def chain_line(previous: str, text: bytes) -> str:
    """The hash of a line. `text` is the line up to the comma before its own hash."""
    return hashlib.sha256(previous.encode() + text).hexdigest()
