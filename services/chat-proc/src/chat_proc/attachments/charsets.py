"""The charset of stored text, named by its type as in a Content-Type header, and decoding it."""

import codecs
from collections.abc import Mapping

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
