"""What an author of an agent imports: `@tool` on functions, the context of their calls, workflows, settings and
secrets."""

from everturn_sdk.channels import (
    ChannelInstance,
    ChannelResult,
    ChannelSpec,
    ChannelSubscribers,
    ServiceError,
    StreamMeta,
)
from everturn_sdk.models import Models, stream_with_channels
from everturn_sdk.operations import OperationError, operation
from everturn_sdk.protocol import CallContext, OperationContext, RunFile, SourceRow
from everturn_sdk.settings import MissingSetting, get_plain, get_secret, get_settings
from everturn_sdk.tools import Rendered, ToolContext, ToolError, tool
from everturn_sdk.workflows import (
    BaseWorkflow,
    ContextRAGClient,
    ConversationStore,
    HostingService,
    Payload,
    React,
    RunResult,
    StepAmbiguous,
    StepFailed,
    ToolUse,
    WorkflowError,
)

__all__ = [
    "BaseWorkflow",
    "CallContext",
    "ChannelInstance",
    "ChannelResult",
    "ChannelSpec",
    "ChannelSubscribers",
    "ContextRAGClient",
    "ConversationStore",
    "HostingService",
    "MissingSetting",
    "Models",
    "OperationContext",
    "OperationError",
    "Payload",
    "React",
    "Rendered",
    "RunFile",
    "RunResult",
    "ServiceError",
    "SourceRow",
    "StepAmbiguous",
    "StepFailed",
    "StreamMeta",
    "ToolContext",
    "ToolError",
    "ToolUse",
    "WorkflowError",
    "get_plain",
    "get_secret",
    "get_settings",
    "operation",
    "stream_with_channels",
    "tool",
]
