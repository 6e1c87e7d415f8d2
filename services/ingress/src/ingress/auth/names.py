"""The grammar of tenant, project and user names: bounded, and nothing that means something in a key or a path."""

import re

_SCOPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+|=~-]{0,127}", re.ASCII)


def is_scope_name(text: str) -> bool:
    """Whether `text` may name a tenant or a project: 1 to 64 letters, digits, `.`, `_`, `-`."""
    return _SCOPE.fullmatch(text) is not None


def is_user_name(text: str) -> bool:
    """Whether `text` may name a user: 1 to 128 characters as in subjects and mail addresses."""
    return _USER.fullmatch(text) is not None
