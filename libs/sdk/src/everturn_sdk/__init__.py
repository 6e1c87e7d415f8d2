"""What an author of an agent imports: `@tool` on functions, the context of their calls, settings and secrets."""

from everturn_sdk.settings import MissingSetting, get_plain, get_secret, get_settings
from everturn_sdk.tools import Rendered, ToolContext, ToolError, tool

__all__ = [
    "MissingSetting",
    "Rendered",
    "ToolContext",
    "ToolError",
    "get_plain",
    "get_secret",
    "get_settings",
    "tool",
]
