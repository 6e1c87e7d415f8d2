// The public surface of the client library.
export * from "./types";
export { type ClientOptions, EverturnClient, type ListQuery, type Outgoing, type Scope, type Signalled } from "./client";
export { TIMINGS, type Timings } from "./http/backoff";
export { InvalidResponse, type FieldError, ProblemError, UNKNOWN_AGENT, Unreachable } from "./http/errors";
export { makeKey } from "./http/keys";
export { foldEvent, foldEvents } from "./fold/fold";
export { isOpen } from "./fold/fold";
export { type CompactionNotice, type PhaseNotice, type QueuePlace, type ToolProgress, type Transient, foldTransient } from "./fold/transient";
export { ConversationStream, type ConversationSnapshot } from "./stream/conversationStream";
export type { Connection, ConnectionStatus } from "./stream/eventStream";
export { type Frames, browserFrames } from "./stream/frames";
export { type Network, browserNetwork } from "./stream/network";
