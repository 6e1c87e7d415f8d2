"""File names become clean, bounded and distinct."""

import unicodedata

import pytest
from helpers.linear_cost import check_linear, repeat
from hypothesis import example, given
from hypothesis import strategies as st

from everturn.core.refs import check_path
from ingress.attachments.sniffing import MAX_NAME_BYTES, clean_name, name_apart


def build_flag(region: str) -> str:
    return "\U0001f3f4" + "".join(chr(0xE0000 + ord(char)) for char in region) + "\U000e007f"


SCOTLAND = build_flag("gbsct")


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("sales.csv", "sales.csv"),
        ("../../etc/passwd", "passwd"),
        ("..%2f..%2fx.txt", "..%2f..%2fx.txt"),
        ("%252e%252e", "%252e%252e"),
        ("C:\\Users\\ann\\a.txt", "a.txt"),
        ("/proc/self/environ", "environ"),
        ("..", "file"),
        (".", "file"),
        ("", "file"),
        ("a/", "file"),
        (". . .", "file"),
        ("a\x00b.txt", "ab.txt"),
        ("a\nb\r.txt", "ab.txt"),
        ("\u202egnp.exe", "gnp.exe"),
        ("a\u200bb.txt", "ab.txt"),
        ("cafe\u0301.txt", "caf\u00e9.txt"),
        ("\U0001f600.png", "\U0001f600.png"),
        ("  a   b .txt ", "a b.txt"),
        ("\ud800.txt", ".txt"),
        ("e\u200d\u0301.txt", "\u00e9.txt"),
    ],
)
def test_a_name_is_cleaned(raw: str, clean: str) -> None:
    assert clean_name(raw) == clean


@given(
    st.one_of(
        st.text(st.characters(), max_size=600),
        st.text(
            st.sampled_from("\u200c\u200d\u0646\u0645\u094d\u0915\u0308a \U0001f3f4👩.") | st.sampled_from(SCOTLAND)
        ),
    )
)
@example("\u0300\ud7c7\u094d\u200c\u094d")
def test_every_name_that_comes_out_is_a_safe_part_of_a_path(raw: str) -> None:
    name = clean_name(raw)

    check_path(name)
    assert 0 < len(name.encode()) <= MAX_NAME_BYTES
    assert "/" not in name
    assert clean_name(name) == name


def test_a_long_name_keeps_its_extension_and_whole_characters() -> None:
    at_cap = "x" * 251 + ".csv"

    assert clean_name(at_cap) == at_cap
    assert clean_name("x" * 252 + ".csv") == at_cap
    assert clean_name("\U0001f600" * 100 + ".csv") == "\U0001f600" * 62 + ".csv"


def test_the_same_name_gets_a_number() -> None:
    same = ["a.csv", "a.csv", "A.CSV", "a (2).csv", unicodedata.normalize("NFD", "é.txt"), "é.txt"]

    assert name_apart(same) == ("a.csv", "a (2).csv", "A (3).CSV", "a (2) (2).csv", "é.txt", "é (2).txt")


@given(st.lists(st.sampled_from(["a.csv", "A.csv", "a (2).csv", "x" * 300, "x" * 299, "../a.csv"]), max_size=12))
def test_names_are_always_apart(raw: list[str]) -> None:
    names = name_apart(raw)

    assert len({name.casefold() for name in names}) == len(raw)
    assert all(len(name.encode()) <= MAX_NAME_BYTES for name in names)


@pytest.mark.parametrize("name", ["👩\u200d👩\u200d👧.png", "👩🏽\u200d💻.png", "❤\ufe0f\u200d🔥.png"])
def test_joined_emoji_stay_one_picture(name: str) -> None:
    assert clean_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645.txt",  # Persian
        "\u06f1\u06f0\u200c\u0633\u0627\u0644\u0647.txt",  # Persian, after a digit
        "\u0915\u094d\u200d\u0937.txt",  # Hindi
        "\u0915\u094d\u200c\u0937.txt",
        "\u09b0\u200d\u09cd\u09af.txt",  # Bengali
        "\u0dc1\u0dca\u200d\u0dbb\u0dd3.txt",  # Sinhala
        "\u0d05\u0d35\u0d28\u0d4d\u200d.txt",  # Malayalam
        "\u1820\u200d\u1820.txt",  # Mongolian
    ],
)
def test_joiners_that_belong_to_the_spelling_stay(name: str) -> None:
    assert clean_name(name) == name


@pytest.mark.parametrize("region", ["gbeng", "gbsct", "gbwls"])
def test_flags_of_tags_stay(region: str) -> None:
    name = f"{build_flag(region)}.png"

    assert clean_name(name) == name


@pytest.mark.parametrize("hidden", [build_flag("hidden"), build_flag("gbsct")[:-1], SCOTLAND[1:]])
def test_other_tags_can_not_hide_a_text(hidden: str) -> None:
    assert clean_name(f"a{hidden}b.png") in ("ab.png", "a\U0001f3f4b.png")


@pytest.mark.parametrize(
    "name",
    [
        "re\u200dport.pdf",
        "re\u200cport.pdf",
        "\u00e9\u200c\u00e9.pdf",
        "\u043e\u200d\u0442.pdf",  # Cyrillic
        "\u65e5\u200d\u672c.txt",  # Japanese
        "\u05d0\u200c\u05d1.txt",  # Hebrew
        "\u0646\u0645\u06cc\u200ca.txt",
        "\u0646\u0645\u06cc\u200c.txt",
        "\u0646\u0645\u06cc\u200c\u200c\u062e\u0648\u0627\u0647\u0645.txt",
        "\u200c\u0646\u0645\u06cc.txt",
        "\u200d👩.png",
        "a\u200d👩.png",
        "👩\u200d.png",
        "👩\u200c👩.png",
    ],
)
def test_other_joiners_are_invisible_and_dropped(name: str) -> None:
    assert not {"\u200c", "\u200d"} & set(clean_name(name))


@pytest.mark.parametrize("unit", ["\u0646\u200c", "👩\u200d", SCOTLAND])
def test_a_cut_leaves_no_part_of_what_is_joined(unit: str) -> None:
    for cut in range(len(unit.encode())):
        name = clean_name("x" * cut + unit * 100 + ".png")

        assert clean_name(name) == name


@pytest.mark.parametrize("unit", ["\u0301\u0323", "\u200d", "\U0001f600\u200d", " ", "a"])
def test_a_name_of_any_length_is_cleaned_quickly_and_keeps_its_extension(unit: str) -> None:
    check_linear(clean_name, repeat(unit, before="a", after=".csv"))

    assert clean_name(f"a{unit * 5_000}.csv").endswith(".csv")
