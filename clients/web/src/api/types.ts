// The types on the wire, generated from the server's models: all by their names there, some also by shorter ones.
import type * as wire from "./generated/wire";

export type * from "./generated/wire";

export type StreamEvent = wire.Event;
export type StreamEventType = StreamEvent["type"];
export type EventOf<Type extends StreamEventType> = Extract<StreamEvent, { readonly type: Type }>;

export type ConversationState = wire.ConversationView["state"];
export type TurnStatus = wire.TurnView["status"];
export type SignalKind = wire.SignalView["kind"];
export type Reaction = NonNullable<wire.FeedbackIn["reaction"]>;
export type Compaction = wire.ChatCompaction;
export type Phase = wire.ChatPhase;
export type ToolReport = wire.ChatTool;

export type Accepted = wire.AcceptedOut;
export type Agent = wire.BundleOut;
export type AgentList = wire.BundleList;
export type Collection = wire.CollectionOut;
export type CollectionList = wire.CollectionList;
export type Commit = wire.CommitOut;
export type ConnectedAccount = wire.ConnectionOut;
export type ConnectedAccounts = wire.ConnectionList;
export type KeptDocument = wire.DocumentOut;
export type KeptDocuments = wire.DocumentList;
export type Widget = wire.WidgetOut;
export type WidgetAddress = wire.WidgetAddressOut;
export type SentSignal = wire.SignalOut;
export type Diff = wire.DiffOut;
export type DiffFile = wire.DiffFileOut;
export type Folder = wire.TreeOut;
export type FolderEntry = wire.EntryOut;
export type Erased = wire.ErasedOut;
export type Forked = wire.ForkOut;
export type FeedbackReceipt = wire.FeedbackOut;
export type RoundContext = wire.RoundContextOut;
export type ContextSegment = wire.SegmentOut;
export type SearchQuery = wire.SearchIn;
export type SearchHits = wire.SearchOut;
export type SearchHit = wire.HitOut;
export type Guest = wire.GuestOut;
export type Turn = wire.TurnOut;
