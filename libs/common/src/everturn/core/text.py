"""The encoding of stored text, named by its type as in a Content-Type header, and the words by which a text is
searched."""

import codecs
import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache

UTF8 = "utf-8"
CODECS: Mapping[str, str] = {
    UTF8: UTF8,
    "utf-16le": "utf-16-le",
    "utf-16be": "utf-16-be",
    "shift_jis": "cp932",
    "euc-jp": "euc_jp",
    "iso-2022-jp": "iso2022_jp",
    "iso-2022-kr": "iso2022_kr",
    "gb18030": "gb18030",
    "big5": "cp950",
    "euc-kr": "cp949",
    "koi8-r": "koi8_r",
    "koi8-u": "koi8_u",
    "ibm866": "cp866",
    "macintosh": "mac_roman",
    "x-mac-cyrillic": "mac_cyrillic",
    "windows-874": "cp874",
    **{f"windows-{number}": f"cp{number}" for number in range(1250, 1259)},
    **{f"iso-8859-{number}": f"iso8859_{number}" for number in (2, 5, 7, 8)},
}
"""Labels of the WHATWG encoding standard, which browsers know, and Python's codecs for them."""
_MARK = "\ufeff"

MAX_WORD_CHARS = 40
_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+"
)
"""Thai, Lao, Burmese, Khmer, kana and Chinese characters: no blanks separate their words."""


def read_charset(mime: str) -> str:
    """The label in `text/csv; charset=windows-1252`. UTF-8 for a type without one, and for a label that only another
    version knows."""
    for parameter in mime.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and (label := value.strip().strip('"').lower()) in CODECS:
            return label
    return UTF8


class TextDecoder:
    """Decodes the bytes of one text, piece by piece, without its byte order mark. Invalid bytes become U+FFFD."""

    def __init__(self, mime: str) -> None:
        self._decoder = codecs.getincrementaldecoder(CODECS[read_charset(mime)])("replace")
        self._begun = False

    def decode(self, data: bytes, *, final: bool = False) -> str:
        """The text of the next piece; `final` is for the last one."""
        text = self._decoder.decode(data, final)
        if self._begun or not text:
            return text
        self._begun = True
        return text.removeprefix(_MARK)


def decode_text(data: bytes, mime: str, *, whole: bool = True) -> str:
    """All of a text, or its beginning, without a character that is cut at the end."""
    return TextDecoder(mime).decode(data, final=whole)


def find_words(text: str, *, limit: int) -> tuple[str, ...]:
    """The different words of a text in the order of their first use, at most `limit`.

    Accents and case are ignored: `Café` and `cafe` are one word. `snake_case` is two words.

    Words are folded, limited in length, and cut into pairs in scripts without blanks, as search compares them.
    """
    found: dict[str, None] = {}
    for word in _split(fold(text)):
        found.setdefault(word[:MAX_WORD_CHARS])
        if len(found) >= limit:
            break
    return tuple(found)


def fold(text: str) -> str:
    """The text without case, width and accents.

    It works character by character: normalizing a run of combining characters takes quadratic time, and they are only
    left out here.
    """
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", "".join(map(_fold_char, text)))


@lru_cache(maxsize=4096)
def _fold_char(char: str) -> str:
    # Twice, because decomposition can produce a capital letter, and folding a letter can produce two.
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", char).casefold())
    return "".join(c for c in decomposed if not unicodedata.combining(c))


def _split(text: str) -> Iterable[str]:
    for match in _WORD.finditer(text):
        word = match.group()
        start = 0
        for run in _UNSPACED.finditer(word):
            if run.start() > start:
                yield word[start : run.start()]
            yield from _pairs(run.group())
            start = run.end()
        if start < len(word):
            yield word[start:]


def _pairs(run: str) -> Iterable[str]:
    return (run[index : index + 2] for index in range(max(1, len(run) - 1)))
