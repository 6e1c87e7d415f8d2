"""How files reach the model: the steps, and every limit on them.

1. Each file is named with its ref and path in the block that brought it (`everturn/timeline/rendering.py`), so that
   tools and programs can open it, whatever its type.
2. The model also reads the beginning of a text file, which is kept in a block of its own: `AttachmentReader`
   (`attachments/reader.py`) loads it in `load_previews`, at the opening of a turn (`worker/runner.py`) and when signals
   are folded (`agent/loop.py`). The memory indexer (`memory/indexer.py`) makes the same beginning searchable. The rest
   is read by `react.read` (`tools/context/read.py`), and in programs by `fetch_ctx` (`tools/context/fetch_ctx.py`),
   both with `load_excerpt`.
3. Images and PDFs of the newest turn are attached to each of its requests, if the model can see them: `block_media`
   (`timeline/artifacts.py`) finds them in the blocks, `PromptRenderer` (`timeline/view.py`) names them in
   `wanted_media`, `TurnMedia` (`attachments/reader.py`) loads those that fit one request, shrinks large images
   (`attachments/fitting.py`) and encodes all of them once, and `PromptRenderer.render` attaches them behind their
   blocks. `react.read` attaches a file of an earlier turn in the same way.
4. What exceeds a limit is only named. A cut preview says how long the text is, or that the file is longer if only its
   beginning was read. The text of a block says that the request doesn't show its file, and `react.read` says that a
   program can open it. Its guide (`tools/context/read.md`) says so beforehand.

Another type becomes text, for previews, reads and search alike, when `AttachmentReader` accepts it in `has_text` and
converts it in `load_beginning` and `load_excerpt`. Images and PDFs need one more change: `react.read` attaches what
`is_media` accepts, and asks `has_text` only about other files. Anything but plain text has to be parsed in a confined
process, as in `attachments/fitting.py`. Which types people can attach at all: `ingress/attachments/sniffing.py`. Which
images every provider accepts: `everturn/models/port.py`.
"""

from everturn.confinement.fork import ForkLimits
from everturn.models.port import IMAGE_MIMES, PDF_MIME

_TEXT_APPLICATION = frozenset({"application/json", "application/xml", "application/yaml", "application/csv"})

BEGINNING_BYTES = 64 * 1024
"""How much of a text file is read for its preview and for search: about as much as its snippets can hold."""
PREVIEW_CHARS = 4_000
"""How much of the file the model sees without asking."""
MAX_PREVIEWS = 20
"""For the files of one message, or of the signals of one round."""
PREVIEWS_TIMEOUT_S = 30.0
"""For loading all of them."""
MAX_TEXT_BYTES = 10 * 1024 * 1024
"""The largest file that is read as text: all of it is read to count its lines. By default the ingress accepts no larger
document (MODALITY_MAX_DOC_BYTES)."""

MAX_IMAGE_BYTES = 5 * 1024 * 1024
MAX_PDF_BYTES = 10 * 1024 * 1024
"""The largest images and PDFs that are sent to a model. `everturn.models.tokens` estimates their tokens."""
MAX_MEDIA_PARTS = 20
MAX_REQUEST_BYTES = 20 * 1024 * 1024
"""Total of images and PDFs in one request; later ones are only named. Anthropic accepts 32 MB as base64."""
MAX_LOADED_BYTES = 10 * 1024 * 1024
"""The largest file that is loaded to be sent. By default the ingress accepts no larger document or image. Images are
shrunk afterwards."""
MAX_SIDE_PX = 2000
"""Maximum side of a picture for a model. Providers shrink larger ones themselves, and reject some above 2,000."""
MAX_SHRUNK_BYTES = 4 * 1024 * 1024
SHRINK_LIMITS = ForkLimits(memory_bytes=512 * 2**20, cpu_s=10.0, wall_s=30.0, answer_bytes=MAX_SHRUNK_BYTES)
"""For one picture. The memory holds a hundred million pixels at four bytes each, and the shrunk copy."""
FILE_TIMEOUT_S = 60.0
"""For loading one file and shrinking it, including the wait for a free process. The largest images take about 3 s of
CPU. STALL_S in `worker/heartbeat.py` has to be longer."""
REQUEST_TIMEOUT_S = 120.0
"""For all files of one request; those that are not loaded by then are only named."""


def is_text(mime: str) -> bool:
    """Whether a file of this type is plain text, which tools search and edit by lines."""
    return mime.startswith("text/") or mime in _TEXT_APPLICATION or mime == "image/svg+xml"


def is_media(mime: str) -> bool:
    """Whether a model may be able to see such a file itself."""
    return mime in IMAGE_MIMES or mime == PDF_MIME


def max_media_bytes(mime: str) -> int:
    """The size limit for sending a file of this type, which `is_media`, to a model."""
    return MAX_PDF_BYTES if mime == PDF_MIME else MAX_IMAGE_BYTES
