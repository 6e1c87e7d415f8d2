"""The users of one platform, each with their own browser profile."""

from typing import Any

from playwright.async_api import Browser, BrowserContext

from browsing.person import Person

PROFILE = {"reduced_motion": "reduce", "viewport": {"width": 1024, "height": 640}}
"""Nothing that moves for ever: without a graphics card each frame of it is drawn by the processor."""


class BrowserUsers:
    """`alarms` are what pages must never do; `limit_ms` bounds every wait."""

    def __init__(self, browser: Browser, url: str, limit_ms: float) -> None:
        self.alarms: list[str] = []
        self._browser = browser
        self._url = url
        self._limit_ms = limit_ms
        self._contexts: list[BrowserContext] = []

    async def open_page(self, **profile: Any) -> Person:
        """Somebody with the page open where a conversation begins; `profile` is what Playwright's contexts take."""
        context = await self._browser.new_context(**{**PROFILE, **profile})
        self._contexts.append(context)
        context.set_default_timeout(self._limit_ms)
        person = Person(await context.new_page(), self._url, self.alarms)
        person.watch()
        await person.open()
        return person

    async def leave(self) -> None:
        for context in self._contexts:
            await context.close()
