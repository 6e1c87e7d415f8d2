"""File names come out clean, bounded and apart."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parts.growth import check_linear, repeat

from everturn.core.refs import check_path
from ingress.attachments.sniffing import MAX_NAME_BYTES, clean_name, name_apart


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
    ],
)
def test_a_name_is_cleaned(raw: str, clean: str) -> None:
    assert clean_name(raw) == clean


@given(st.text(st.characters(), max_size=600))
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
    twins = ["a.csv", "a.csv", "A.CSV", "a (2).csv", unicodedata.normalize("NFD", "é.txt"), "é.txt"]

    assert name_apart(twins) == ("a.csv", "a (2).csv", "A (3).CSV", "a (2) (2).csv", "é.txt", "é (2).txt")


@given(st.lists(st.sampled_from(["a.csv", "A.csv", "a (2).csv", "x" * 300, "x" * 299, "../a.csv"]), max_size=12))
def test_names_are_always_apart(raw: list[str]) -> None:
    names = name_apart(raw)

    assert len({name.casefold() for name in names}) == len(raw)
    assert all(len(name.encode()) <= MAX_NAME_BYTES for name in names)


@pytest.mark.parametrize("name", ["👩\u200d👩\u200d👧.png", "👩🏽\u200d💻.png", "❤\ufe0f\u200d🔥.png"])
def test_joined_emoji_stay_one_picture(name: str) -> None:
    assert clean_name(name) == name


@pytest.mark.parametrize("name", ["re\u200dport.pdf", "\u200d👩.png", "a\u200d👩.png", "👩\u200d.png"])
def test_other_joiners_are_invisible_and_dropped(name: str) -> None:
    assert "\u200d" not in clean_name(name)


@pytest.mark.parametrize("unit", ["\u0301\u0323", "\u200d", "\U0001f600\u200d", " ", "a"])
def test_a_name_of_any_length_is_cleaned_quickly_and_keeps_its_extension(unit: str) -> None:
    check_linear(clean_name, repeat(unit, before="a", after=".csv"))

    assert clean_name(f"a{unit * 5_000}.csv").endswith(".csv")
