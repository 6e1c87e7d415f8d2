"""What the broker reads of a Pod in the answers of the API of Kubernetes; all else in them is ignored."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

MAX_MESSAGE_CHARS = 4000

Half = Literal["executor", "supervisor"]


def _cut(value: object) -> object:
    return value.strip()[:MAX_MESSAGE_CHARS] if isinstance(value, str) else value or ""


Text = Annotated[str, BeforeValidator(_cut)]
"""Empty if it is missing or null."""


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, frozen=True, extra="ignore")


class Metadata(_Part):
    """A Pod's name, version and marks."""

    name: str
    resource_version: str
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Waiting(_Part):
    """Why a container does not run yet."""

    reason: Text = ""
    message: Text = ""


class Terminated(_Part):
    """How a container ended. The message is the end of its log, if it failed."""

    exit_code: int = 0
    reason: Text = ""
    message: Text = ""


class ContainerState(_Part):
    """One of both, or neither while it runs."""

    waiting: Waiting | None = None
    terminated: Terminated | None = None


class ContainerStatus(_Part):
    """A container as the node reports it."""

    name: str
    image: Text = ""
    image_id: Annotated[Text, Field(alias="imageID")] = ""
    state: ContainerState | None = None

    @property
    def waiting(self) -> Waiting:
        return (self.state and self.state.waiting) or Waiting()


class Condition(_Part):
    """A condition of a Pod, such as that it has no node."""

    type: Text = ""
    reason: Text = ""
    message: Text = ""


class Status(_Part):
    """A Pod as the cluster sees it."""

    phase: Text = ""
    reason: Text = ""
    message: Text = ""
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None


class Container(_Part):
    """A container as it was created."""

    name: str
    image: str


class Spec(_Part):
    """A Pod as it was created."""

    containers: list[Container]


class Pod(_Part):
    """A Pod of any broker."""

    metadata: Metadata
    spec: Spec
    status: Status = Status()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def version(self) -> str:
        return self.metadata.resource_version

    @property
    def has_ended(self) -> bool:
        """Whether both halves have ended, or the cluster has given the Pod up."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def statuses(self) -> Sequence[ContainerStatus]:
        return self.status.container_statuses or ()

    def get_label(self, label: str) -> str:
        """Empty if it has none."""
        return (self.metadata.labels or {}).get(label, "")

    def get_annotation(self, annotation: str) -> str:
        """Empty if it has none."""
        return (self.metadata.annotations or {}).get(annotation, "")

    def find_end(self, half: Half) -> Terminated | None:
        """How a half ended; None while it has not."""
        ends = (status.state.terminated for status in self.statuses if status.name == half and status.state)
        return next(ends, None)

    def has_started(self, half: Half) -> bool:
        """Whether a half runs, or has run."""
        states = (status.state for status in self.statuses if status.name == half)
        return any(state is not None and state.waiting is None for state in states)

    def find_image(self, half: Half) -> str:
        """The digest of a half's image, from the node or from its name; empty while it is not known."""
        found = (status.image_id for status in self.statuses if status.name == half)
        pinned = (container.image for container in self.spec.containers if container.name == half)
        return next(found, "") or next((image for image in pinned if "@" in image), "")

    def find_unschedulable(self) -> str:
        """Why the scheduler finds no node; empty if there is one, or it has not tried yet."""
        for condition in self.status.conditions or ():
            if condition.type == "PodScheduled" and condition.reason == "Unschedulable":
                return condition.message or "the Pod can't be scheduled"
        return ""


class ListMetadata(_Part):
    """Where a list goes on, and its version."""

    resource_version: Text = ""
    rest: Annotated[Text, Field(alias="continue")] = ""


class PodList(_Part):
    """A page of a list."""

    metadata: ListMetadata
    items: list[Pod] | None = None
