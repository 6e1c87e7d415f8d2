"""What bundle.toml says about the process of the bundle's tools."""

from typing import Final

from pydantic import BaseModel, ConfigDict, Field

MIB: Final = 1024 * 1024
DEFAULT_MEMORY_MIB: Final = 1024


class HostSection(BaseModel):
    """`[host]`: the limits of the bundle's process. The operator's maximum applies too."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    memory_mib: int = Field(default=DEFAULT_MEMORY_MIB, ge=256, le=65_536)
    """Address space of each of its processes, in MiB."""
    processes: int = Field(default=64, ge=1, le=1024)
    """Threads and processes that it can have at once, in addition to its main thread."""
    open_files: int = Field(default=256, ge=64, le=4096)
    disk_mib: int = Field(default=512, ge=16, le=65_536)
    """What the files in its folder HOME can take, in MiB."""
