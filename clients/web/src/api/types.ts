// Names for the types on the wire, which are generated from the server's models (generated/wire.ts).
import type { components } from "./generated/wire";

type Schemas = components["schemas"];

export type StreamEvent = Schemas["Event"];
export type StreamEventType = StreamEvent["type"];
export type EventOf<Type extends StreamEventType> = Extract<StreamEvent, { readonly type: Type }>;

export type StateView = Schemas["StateView"];
export type ConversationView = Schemas["ConversationView"];
export type ConversationState = ConversationView["state"];
export type TurnView = Schemas["TurnView"];
export type TurnStatus = TurnView["status"];
export type TextView = Schemas["TextView"];
export type StepView = Schemas["StepView"];
export type StepDetail = Schemas["StepDetail"];
export type PlanSnapshot = Schemas["PlanSnapshot"];
export type FileView = Schemas["FileView"];
export type CitationView = Schemas["CitationView"];
export type SignalView = Schemas["SignalView"];
export type ApprovalView = Schemas["ApprovalView"];
export type FeedbackView = Schemas["FeedbackView"];
export type TurnUsage = Schemas["TurnUsage"];
export type Problem = Schemas["Problem"];
export type ProblemDetails = Schemas["ProblemDetails"];
export type Compaction = Schemas["ChatCompaction"];
export type Phase = Schemas["ChatPhase"];
export type ToolReport = Schemas["ChatTool"];

export type ConversationList = Schemas["ConversationList"];
export type ConversationPatch = Schemas["ConversationPatch"];
export type Accepted = Schemas["AcceptedOut"];
export type SentSignal = Schemas["SignalOut"];
export type SignalKind = SignalView["kind"];
export type Erased = Schemas["ErasedOut"];
export type Forked = Schemas["ForkOut"];
export type Reaction = NonNullable<Schemas["FeedbackIn"]["reaction"]>;
export type FeedbackReceipt = Schemas["FeedbackOut"];
export type RoundContext = Schemas["RoundContextOut"];
export type ContextSegment = Schemas["SegmentOut"];
export type SearchQuery = Schemas["SearchIn"];
export type SearchHits = Schemas["SearchOut"];
export type SearchHit = Schemas["HitOut"];
export type MessageLimits = Schemas["MessageLimits"];
export type Guest = Schemas["GuestOut"];
export type Turn = Schemas["TurnOut"];
