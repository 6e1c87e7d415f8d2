"""A page in all its looks, light and dark, wide and narrow, and what axe finds in each."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, ViewportSize

Width = Literal["desktop", "phone"]
Scheme = Literal["light", "dark"]
SIZES: dict[Width, ViewportSize] = {
    "desktop": {"width": 1024, "height": 640},
    "phone": {"width": 390, "height": 780},
}
GRAVE = ("serious", "critical")
RULES = ("heading-order",)
"""Of those that axe calls moderate, those that hold here too."""
# The borders of a menu or dialog that hand the focus on in the moment they get it, and so never keep it.
BORDERS = "[data-focus-trap]"
RUN = """borders => axe.run({ exclude: [borders] }, { resultTypes: ["violations"] }).then(found => found.violations)"""
# What was just drawn in another look is drawn for good after two frames.
SETTLED = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done())))"


async def find_violations(
    page: Page, *, widths: Sequence[Width] = ("desktop", "phone"), schemes: Sequence[Scheme] = ("light", "dark")
) -> list[str]:
    """One line for each kind of grave violation in a look, with the elements. Leaves the page in the first look."""
    if await page.evaluate("typeof window.axe") == "undefined":
        await page.evaluate(Axe().axe_script)
    found: list[str] = []
    for width in widths:
        for scheme in schemes:
            await show(page, width, scheme)
            found += [f"{width} {scheme}: {line}" for line in _tell(await page.evaluate(RUN, BORDERS))]
    await show(page, widths[0], schemes[0])
    return found


async def show(page: Page, width: Width, scheme: Scheme) -> None:
    await page.set_viewport_size(SIZES[width])
    await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    await page.wait_for_function("scheme => document.documentElement.dataset.theme === scheme", arg=scheme)
    await page.evaluate(SETTLED)


def _tell(violations: Iterable[dict[str, Any]]) -> list[str]:
    return [
        f"{each['id']} ({each['impact']}): {'; '.join(map(_name, each['nodes'][:5]))}"
        for each in violations
        if each["impact"] in GRAVE or each["id"] in RULES
    ]


def _name(node: dict[str, Any]) -> str:
    return f"{node['html'][:160]}: {'; '.join(check['message'] for check in (*node['any'], *node['all'])[:2])}"
