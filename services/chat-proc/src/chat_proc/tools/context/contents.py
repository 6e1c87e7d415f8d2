"""Cuts excerpts out of stored texts, a chunk at a time: what is held is the part that is wanted and one chunk."""

from chat_proc.tools.context.excerpt import Excerpt, Range, start_cutter
from everturn.model.text_encoding import TextDecoder
from everturn.ports.objects import Objects


async def load_excerpt(
    objects: Objects, key: str, *, size: int, wanted: Range, max_chars: int, mime: str = "text/plain"
) -> Excerpt:
    """The wanted part of an object of `size` bytes, in the encoding that its type names. Bytes that are no text become
    U+FFFD. Raises NotFound, Unavailable.

    The whole object passes by, because only so its lines can be counted.
    """
    cutter = start_cutter(wanted, max_chars)
    decoder = TextDecoder(mime)
    async for chunk in objects.load_range(key, start=0, end=size):
        cutter.feed(decoder.decode(chunk))
    cutter.feed(decoder.decode(b"", final=True))
    return cutter.finish()
