// Made by `npm run make-types`; never edited.
// Schemas 691f810af867b88ab26076697409b92109799c643d03adbb4f43ee9da189a9e5
// Types 313b89a901979a2dec29e4accda667194e8f367173ce570bde35c3d045808079
export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * AcceptedOut
         * @description The message is stored and will be answered. `signal_id` is there when it went into the running turn `turn_id`.
         *
         *     An event that is only to be recorded has no `turn_id` in a conversation at rest: it waits for the next turn.
         */
        readonly AcceptedOut: {
            /** Conversation Id */
            readonly conversation_id: string;
            /** Events Url */
            readonly events_url: string;
            readonly receipt: components["schemas"]["ReceiptOut"];
            /** Signal Id */
            readonly signal_id?: string;
            /** Turn Id */
            readonly turn_id?: string;
        };
        /**
         * ApprovalView
         * @description A call that a person is asked about before it is made.
         *
         *     `params` are those of the call without secrets, and not all of them where it says `cut`. `expires_at` is when the
         *     question counts as denied. `explanation` says why a person is asked, empty where the tool always asks. `reason` is
         *     a person's.
         */
        readonly ApprovalView: {
            /** Approval Id */
            readonly approval_id: string;
            /** Call Id */
            readonly call_id: string;
            /** Cut */
            readonly cut: boolean;
            /** Expires At */
            readonly expires_at: string;
            /** Explanation */
            readonly explanation: string;
            /** Params */
            readonly params: {
                readonly [key: string]: unknown;
            };
            /** Reason */
            readonly reason: string;
            /** Round */
            readonly round: number;
            /**
             * State
             * @enum {string}
             */
            readonly state: "pending" | "approved" | "denied" | "expired" | "withdrawn";
            /** Tool Id */
            readonly tool_id: string;
        };
        /**
         * AttachmentIn
         * @description A file inside a JSON message.
         */
        readonly AttachmentIn: {
            /**
             * Data Base64
             * @example bmFtZSxzdW0KYSwxCg==
             */
            readonly data_base64: string;
            /**
             * Filename
             * @example sales.csv
             */
            readonly filename: string;
            /**
             * Mime
             * @default
             * @example text/csv
             */
            readonly mime?: string;
        };
        /**
         * BatteryOut
         * @description How many attempts of the escape battery were denied; `at` is when, in seconds since 1970.
         */
        readonly BatteryOut: {
            /** At */
            readonly at: number;
            /** Held */
            readonly held: number;
            /** Total */
            readonly total: number;
        };
        /**
         * BlockView
         * @description One block as it is stored. `path` is its ref; `hash` follows from the block before it.
         */
        readonly BlockView: {
            /** Author */
            readonly author: string;
            /** Body */
            readonly body: {
                readonly [key: string]: unknown;
            };
            /** Call Id */
            readonly call_id?: string;
            /** Hash */
            readonly hash: string;
            /** Path */
            readonly path: string;
            /** Round */
            readonly round: number;
            /** Seq */
            readonly seq: number;
            /** Ts */
            readonly ts: string;
            /** Ts First */
            readonly ts_first?: string;
            /** Turn Id */
            readonly turn_id: string;
            /** Type */
            readonly type: string;
        };
        /**
         * ByRnIn
         * @description Which file is meant.
         */
        readonly ByRnIn: {
            /**
             * Rn
             * @example ef:default:default:chatbot:upload:ann:conv_01890a5d-ac96-774b-bcce-b302099a8057:turn_01890a5d-ac96-774b-bcce-b302099a8058:attachment:turn_01890a5d-ac96-774b-bcce-b302099a8058/attachments/a.csv
             */
            readonly rn: string;
        };
        /**
         * CitationView
         * @description A web source that the answer cites as [[S:sid]], as it was then.
         */
        readonly CitationView: {
            /** Favicon Url */
            readonly favicon_url?: string;
            /** Published Time Iso */
            readonly published_time_iso?: string;
            /** Sid */
            readonly sid: number;
            /**
             * Source Type
             * @enum {string}
             */
            readonly source_type: "web" | "file" | "attachment" | "manual";
            /** Title */
            readonly title: string;
            /** Url */
            readonly url: string;
        };
        /**
         * ConversationIn
         * @description A new conversation.
         */
        readonly ConversationIn: {
            /**
             * Bundle Id
             * @description A bundle of this server's configuration, or `default`; any other is a 422.
             */
            readonly bundle_id?: string | null;
            /**
             * Title
             * @default
             * @example Sales by region
             */
            readonly title?: string;
        };
        /**
         * ConversationList
         * @description One page, newest activity first; `next_cursor` goes on, null at the end.
         */
        readonly ConversationList: {
            /** Items */
            readonly items: readonly components["schemas"]["ConversationView"][];
            /** Next Cursor */
            readonly next_cursor?: string;
        };
        /**
         * ConversationOut
         * @description A conversation. While its turn `turn_id` waits, `position` is how many turns are taken before it, 0 for the next
         *     one; with `position_more` there are more than that.
         */
        readonly ConversationOut: {
            /** Archived */
            readonly archived: boolean;
            /** Bundle Id */
            readonly bundle_id?: string;
            /** Conversation Id */
            readonly conversation_id: string;
            /** Created At */
            readonly created_at: string;
            /** Last Activity At */
            readonly last_activity_at: string;
            /** Position */
            readonly position?: number;
            /** Position More */
            readonly position_more?: boolean;
            /**
             * State
             * @enum {string}
             */
            readonly state: "idle" | "queued" | "running" | "waiting" | "error" | "unknown";
            /** Title */
            readonly title: string;
            /** Turn Id */
            readonly turn_id?: string;
        };
        /**
         * ConversationPatch
         * @description What is to change.
         */
        readonly ConversationPatch: {
            /**
             * Archived
             * @example true
             */
            readonly archived?: boolean | null;
            /**
             * Title
             * @example Sales by region
             */
            readonly title?: string | null;
        };
        /**
         * ConversationView
         * @description A conversation as a client may see it. Times are ISO 8601 in UTC.
         */
        readonly ConversationView: {
            /** Archived */
            readonly archived: boolean;
            /** Bundle Id */
            readonly bundle_id?: string;
            /** Conversation Id */
            readonly conversation_id: string;
            /** Created At */
            readonly created_at: string;
            /** Last Activity At */
            readonly last_activity_at: string;
            /**
             * State
             * @enum {string}
             */
            readonly state: "idle" | "queued" | "running" | "waiting" | "error" | "unknown";
            /** Title */
            readonly title: string;
        };
        /**
         * CountsOut
         * @description Judgements by reaction; `unrated` have a text only.
         */
        readonly CountsOut: {
            /**
             * Neutral
             * @example 0
             */
            readonly neutral: number;
            /**
             * Not Ok
             * @example 1
             */
            readonly not_ok: number;
            /**
             * Ok
             * @example 3
             */
            readonly ok: number;
            /**
             * Unrated
             * @example 0
             */
            readonly unrated: number;
        };
        /**
         * DerivedArtifacts
         * @description Documents built from rows for one answer; nothing of them is stored.
         */
        readonly DerivedArtifacts: {
            readonly "conv.timeline.v1": components["schemas"]["TimelineView"];
            /** Turn.Log */
            readonly "turn.log": readonly components["schemas"]["TurnLogView"][];
        };
        /**
         * ErasedOut
         * @description What was erased: rows by table, and objects. `objects_left` could not be deleted.
         */
        readonly ErasedOut: {
            /** Conversation Id */
            readonly conversation_id: string;
            /** Objects */
            readonly objects: number;
            /** Objects Left */
            readonly objects_left: number;
            /** Rows */
            readonly rows: {
                readonly [key: string]: number;
            };
        };
        /**
         * EventIn
         * @description What a signal of kind `event` tells besides its text; `kind` is one of those this server takes.
         *
         *     A reactive event wakes the agent; another one is only recorded. `payload` has at most 16 KB as JSON.
         *     `iteration_credit` are the rounds that a reactive event adds to the turn.
         */
        readonly EventIn: {
            /**
             * Iteration Credit
             * @default 0
             */
            readonly iteration_credit?: number;
            /**
             * Kind
             * @example form
             */
            readonly kind: string;
            /**
             * Payload
             * @example {
             *       "city": "Oslo",
             *       "form": "address"
             *     }
             */
            readonly payload?: {
                readonly [key: string]: unknown;
            };
            /**
             * Reactive
             * @default true
             */
            readonly reactive?: boolean;
        };
        /**
         * EventView
         * @description What sort of external event a signal is, and whether the agent is to do something about it.
         */
        readonly EventView: {
            /** Kind */
            readonly kind: string;
            /** Reactive */
            readonly reactive: boolean;
        };
        /**
         * FeedbackIn
         * @description A judgement of a turn. A user's replaces the one before, null without a text clears it; a machine's is added.
         */
        readonly FeedbackIn: {
            /**
             * Confidence
             * @description Of a machine's judgement.
             */
            readonly confidence?: number | null;
            /**
             * Origin
             * @default user
             * @enum {string}
             */
            readonly origin?: "user" | "machine";
            /**
             * Reaction
             * @example ok
             */
            readonly reaction: ("ok" | "not_ok" | "neutral") | null;
            /**
             * Text
             * @default
             * @example Just what I needed.
             */
            readonly text?: string;
            /**
             * Ts
             * @description When it was given; now when left out.
             */
            readonly ts?: string | null;
        };
        /**
         * FeedbackOut
         * @description The feedback as it stands now.
         */
        readonly FeedbackOut: {
            /** Cleared */
            readonly cleared: boolean;
            readonly feedback: components["schemas"]["FeedbackView"];
            /** Turn Id */
            readonly turn_id: string;
        };
        /**
         * FeedbackView
         * @description A judgement of the turn.
         */
        readonly FeedbackView: {
            /** Confidence */
            readonly confidence?: number;
            /**
             * Origin
             * @enum {string}
             */
            readonly origin: "user" | "machine";
            /**
             * Reaction
             * @enum {string}
             */
            readonly reaction?: "ok" | "not_ok" | "neutral";
            /** Text */
            readonly text: string;
            /** Ts */
            readonly ts: string;
        };
        /**
         * FetchIn
         * @description Which turns to read: the named ones, or the last `limit`, or those before `cursor`.
         */
        readonly FetchIn: {
            /**
             * Conversation Id
             * @example conv_01890a5d-ac96-774b-bcce-b302099a8057
             */
            readonly conversation_id: string;
            /** Cursor */
            readonly cursor?: string | null;
            /**
             * Limit
             * @default 20
             */
            readonly limit?: number;
            /**
             * Materialize
             * @description Also the timeline with its sources, and the turn logs.
             * @default false
             */
            readonly materialize?: boolean;
            /** Turn Ids */
            readonly turn_ids?: readonly string[] | null;
        };
        /**
         * FetchView
         * @description A conversation with its last turns; the documents only if they were asked for.
         */
        readonly FetchView: {
            readonly artifacts?: components["schemas"]["DerivedArtifacts"];
            readonly conversation: components["schemas"]["ConversationView"];
            /** Cursor */
            readonly cursor: string;
            /** Next Cursor */
            readonly next_cursor?: string;
            /** Turns */
            readonly turns: readonly components["schemas"]["TurnView"][];
        };
        /**
         * FileType
         * @description A type of file that this server accepts. `extensions` are lower case with their dot; a file of the type must have
         *     one of them. The type with no extensions is text: any file whose name has no extension of another type, and whose
         *     content is text.
         */
        readonly FileType: {
            /**
             * Extensions
             * @example [
             *       ".png"
             *     ]
             */
            readonly extensions: readonly string[];
            /**
             * Family
             * @enum {string}
             */
            readonly family: "image" | "document" | "text";
            /**
             * Max Bytes
             * @example 5000000
             */
            readonly max_bytes: number;
            /**
             * Media Type
             * @example image/png
             */
            readonly media_type: string;
        };
        /**
         * FileView
         * @description A file a client may download from `url` (a path on the ingress). `size` in bytes.
         */
        readonly FileView: {
            /** Artifact Id */
            readonly artifact_id: string;
            /** Filename */
            readonly filename: string;
            /** Mime */
            readonly mime: string;
            /** Ref */
            readonly ref: string;
            /** Rn */
            readonly rn: string;
            /** Size */
            readonly size: number;
            /** Url */
            readonly url: string;
            /** Verdict */
            readonly verdict: string;
            /**
             * Visibility
             * @enum {string}
             */
            readonly visibility: "internal" | "external";
        };
        /**
         * ForgottenOut
         * @description How many memories were forgotten.
         */
        readonly ForgottenOut: {
            /**
             * Forgotten
             * @example 1
             */
            readonly forgotten: number;
        };
        /**
         * ForkIn
         * @description Up to the end of which turn, the last ended one without; and the title, that of the original without.
         */
        readonly ForkIn: {
            /**
             * Title
             * @example Another way
             */
            readonly title?: string | null;
            /**
             * Turn Id
             * @example turn_01890a5d-ac96-774b-bcce-b302099a8057
             */
            readonly turn_id?: string | null;
        };
        /**
         * ForkOut
         * @description The new conversation, and what it was copied from: `turn_id` is the original's last turn in it.
         */
        readonly ForkOut: {
            /** Blocks */
            readonly blocks: number;
            /** Conversation Id */
            readonly conversation_id: string;
            /** Forked From */
            readonly forked_from: string;
            /** Turn Id */
            readonly turn_id: string;
            /** Turns */
            readonly turns: number;
        };
        /**
         * FoundFileOut
         * @description A file and where its content is. `size` in bytes, `url` a path on this server.
         */
        readonly FoundFileOut: {
            /** Artifact Id */
            readonly artifact_id: string;
            /** Filename */
            readonly filename: string;
            /** Mime */
            readonly mime: string;
            /** Size */
            readonly size: number;
            /** Url */
            readonly url: string;
        };
        /**
         * GuestOut
         * @description `token` is the guest's bearer token; whoever has it is this guest. `expires_at` is UTC, RFC 3339.
         */
        readonly GuestOut: {
            /** Expires At */
            readonly expires_at: string;
            /** Token */
            readonly token: string;
            /** User Id */
            readonly user_id: string;
        };
        /**
         * HealthOut
         * @description The process answers.
         */
        readonly HealthOut: {
            /** Status */
            readonly status: string;
        };
        /**
         * HitOut
         * @description One hit: `ref` names the whole text that the snippet is of, `title` is its conversation's as it is now. `score`
         *     orders the hits of one search, no more.
         */
        readonly HitOut: {
            /** Conversation Id */
            readonly conversation_id: string;
            /** Ref */
            readonly ref: string;
            /** Score */
            readonly score: number;
            /** Snippet */
            readonly snippet: string;
            /**
             * Target
             * @enum {string}
             */
            readonly target: "user" | "assistant" | "summary" | "notes" | "attachment";
            /** Title */
            readonly title: string;
            /** Ts */
            readonly ts: string;
            /** Turn Id */
            readonly turn_id: string;
        };
        /**
         * IndexEntry
         * @description A text. `kind` is its block type, `hint` its first words.
         */
        readonly IndexEntry: {
            /** Hint */
            readonly hint: string;
            /** Kind */
            readonly kind: string;
            /** Ref */
            readonly ref: string;
        };
        /**
         * IndexedCall
         * @description A tool call. `result_ref` and `status` are null while it has no result, `call_ref` where the call is lost.
         */
        readonly IndexedCall: {
            /** Call Ref */
            readonly call_ref?: string;
            /** Hint */
            readonly hint: string;
            /** Result Ref */
            readonly result_ref?: string;
            /** Status */
            readonly status?: string;
            /** Tool Id */
            readonly tool_id: string;
        };
        /**
         * IndexedFile
         * @description A file. `source` is the tool or the block type that brought it, `size` in bytes.
         */
        readonly IndexedFile: {
            /** Hint */
            readonly hint: string;
            /** Kind */
            readonly kind: string;
            /** Mime */
            readonly mime: string;
            /** Ref */
            readonly ref: string;
            /** Size */
            readonly size: number;
            /** Source */
            readonly source: string;
            /** Visibility */
            readonly visibility: string;
        };
        /**
         * JudgedOut
         * @description A conversation that was judged in the period. `title` is null in a report of the whole project.
         */
        readonly JudgedOut: {
            /** Conversation Id */
            readonly conversation_id: string;
            /** Last Judged At */
            readonly last_judged_at: string;
            readonly machine: components["schemas"]["CountsOut"];
            /** Machine Confidence */
            readonly machine_confidence?: number;
            /** Satisfaction */
            readonly satisfaction?: number;
            /** Title */
            readonly title?: string;
            /** Turns */
            readonly turns: number;
            readonly user: components["schemas"]["CountsOut"];
            /** User Id */
            readonly user_id: string;
        };
        /**
         * MemoryList
         * @description One page, the last changed first; `next_cursor` goes on, null at the end.
         */
        readonly MemoryList: {
            /** Items */
            readonly items: readonly components["schemas"]["MemoryOut"][];
            /**
             * Next Cursor
             * @example null
             */
            readonly next_cursor?: string;
        };
        /**
         * MemoryOut
         * @description One thing that is remembered. `confidence` and `salience` are from 0 to 1; times are ISO 8601 in UTC.
         */
        readonly MemoryOut: {
            /**
             * Confidence
             * @example 0.8
             */
            readonly confidence: number;
            /**
             * Created At
             * @example 2026-03-01T12:00:00.000Z
             */
            readonly created_at: string;
            /**
             * Labels
             * @example [
             *       "preference"
             *     ]
             */
            readonly labels: readonly string[];
            /**
             * Memory Id
             * @example mem_0f1e2d3c4b5a69788796
             */
            readonly memory_id: string;
            /**
             * Pinned
             * @example false
             */
            readonly pinned: boolean;
            /**
             * Salience
             * @example 0.5
             */
            readonly salience: number;
            /**
             * Text
             * @example Prefers metric units.
             */
            readonly text: string;
            /**
             * Updated At
             * @example 2026-03-01T12:00:00.000Z
             */
            readonly updated_at: string;
        };
        /**
         * MessageLimits
         * @description The largest message that this server accepts. A file counts as an image, a document or a text by its content.
         */
        readonly MessageLimits: {
            /**
             * Document Bytes
             * @description Bytes of one PDF, .docx, .pptx or .xlsx.
             * @example 10000000
             */
            readonly document_bytes: number;
            /**
             * Event Streams
             * @description Open event streams of one user on one process; one more is a 429.
             * @example 32
             */
            readonly event_streams: number;
            /**
             * File Types
             * @description The types of files that are accepted; no others are.
             */
            readonly file_types: readonly components["schemas"]["FileType"][];
            /**
             * Files
             * @description Files of one message.
             * @example 20
             */
            readonly files: number;
            /**
             * Image Bytes
             * @description Bytes of one JPEG, PNG, GIF or WebP.
             * @example 5000000
             */
            readonly image_bytes: number;
            /**
             * Image Pixels
             * @description Width times height of one image.
             * @example 100000000
             */
            readonly image_pixels: number;
            /**
             * Json Bytes
             * @description Bytes of a body that is JSON, with files in base64, and of the part `message` of any other.
             * @example 8000000
             */
            readonly json_bytes: number;
            /**
             * Message Bytes
             * @description Bytes of the whole request with all files and headers of its parts.
             * @example 25000000
             */
            readonly message_bytes: number;
            /**
             * Pending Signals
             * @description Messages and other signals that may wait for one running turn; one more is a 429.
             * @example 64
             */
            readonly pending_signals: number;
            /**
             * Running Turns
             * @description Turns of one user that run at once while turns of others wait; null while no worker reports it.
             * @example 3
             */
            readonly running_turns?: number;
            /**
             * Text Bytes
             * @description Bytes of one text file of any other kind.
             * @example 10000000
             */
            readonly text_bytes: number;
            /**
             * Text Chars
             * @description Characters of the text.
             * @example 1000000
             */
            readonly text_chars: number;
        };
        /**
         * PartOut
         * @description How a part is.
         */
        readonly PartOut: {
            /** Detail */
            readonly detail: string;
            /** Ok */
            readonly ok: boolean;
        };
        /**
         * PeriodIn
         * @description A period, from `from` on and before `to`. `scope` is `own`, or for admins `project`, which is their default.
         */
        readonly PeriodIn: {
            /**
             * Cursor
             * @description The `next_cursor` of the page before.
             */
            readonly cursor?: string | null;
            /**
             * From
             * Format: date-time
             * @example 2026-03-01T00:00:00Z
             */
            readonly from: string;
            /**
             * Limit
             * @description Rows of a page.
             * @default 50
             */
            readonly limit?: number;
            /** Scope */
            readonly scope?: ("own" | "project") | null;
            /**
             * To
             * Format: date-time
             * @example 2026-04-01T00:00:00Z
             */
            readonly to: string;
        };
        /**
         * PeriodOut
         * @description One page, the last judged first; `next_cursor` goes on, null at the end.
         */
        readonly PeriodOut: {
            /** Items */
            readonly items: readonly components["schemas"]["JudgedOut"][];
            /** Next Cursor */
            readonly next_cursor?: string;
            /**
             * Scope
             * @enum {string}
             */
            readonly scope: "own" | "project";
        };
        /**
         * PlanSnapshot
         * @description The state of one plan after one change. Times are ISO 8601 in UTC.
         */
        readonly PlanSnapshot: {
            /** Closed Ts */
            readonly closed_ts?: string;
            /** Current */
            readonly current: boolean;
            /** Last Turn Id */
            readonly last_turn_id: string;
            /** Origin Turn Id */
            readonly origin_turn_id: string;
            /** Plan Id */
            readonly plan_id: string;
            /** Snapshot Ref */
            readonly snapshot_ref: string;
            readonly status: components["schemas"]["PlanStatus"];
            /** Steps */
            readonly steps: readonly components["schemas"]["PlanStep"][];
            /** Superseded Ts */
            readonly superseded_ts?: string;
        };
        /**
         * PlanStatus
         * @description What became of a plan. OPEN ones are shown to the model.
         * @enum {string}
         */
        readonly PlanStatus: "open" | "complete" | "closed" | "superseded";
        /**
         * PlanStep
         * @description One step; `n` counts from 1.
         */
        readonly PlanStep: {
            /** Label */
            readonly label: string;
            /** N */
            readonly n: number;
            readonly status: components["schemas"]["StepStatus"];
        };
        /**
         * Problem
         * @description `type` is stable and starts with `urn:everturn:problem:`; `status` is an HTTP status.
         */
        readonly Problem: {
            /** Detail */
            readonly detail: string;
            /** Instance */
            readonly instance?: string;
            /** Status */
            readonly status: number;
            /** Title */
            readonly title: string;
            /** Type */
            readonly type: string;
        };
        /**
         * ReadyOut
         * @description `degraded` serves what does not need the failing part; `unready` answers 503.
         *
         *     `workers` has at most 100, by id, and is null where they can't be asked for. Messages are taken without any.
         */
        readonly ReadyOut: {
            /** Parts */
            readonly parts: {
                readonly [key: string]: components["schemas"]["PartOut"];
            };
            /**
             * Status
             * @enum {string}
             */
            readonly status: "ready" | "degraded" | "unready";
            /** Workers */
            readonly workers?: readonly components["schemas"]["WorkerOut"][];
        };
        /**
         * ReceiptOut
         * @description Where the message stands: queued as a turn or for the next one, or as a signal in one of a signal's states.
         *
         *     A new turn has its `position`: how many turns are taken before it, as it was then; with `position_more` more than
         *     that. `file_notices` has a sentence for each file that was stored otherwise than it was sent, for example without
         *     the video behind a picture.
         */
        readonly ReceiptOut: {
            /** File Notices */
            readonly file_notices?: readonly string[];
            /** Position */
            readonly position?: number;
            /** Position More */
            readonly position_more?: boolean;
            /**
             * State
             * @enum {string}
             */
            readonly state: "accepted" | "queued" | "applied" | "promoted" | "expired" | "rejected" | "retracted" | "unknown";
        };
        /**
         * RoundContextOut
         * @description The request of one round; `tokens` are estimates. `next_cursor` goes on with its parts, null at the end.
         */
        readonly RoundContextOut: {
            /** Conversation Id */
            readonly conversation_id: string;
            /** Max Output Tokens */
            readonly max_output_tokens: number;
            /** Model */
            readonly model: string;
            /** Next Cursor */
            readonly next_cursor?: string;
            /** Round */
            readonly round: number;
            /** Segments */
            readonly segments: readonly components["schemas"]["SegmentOut"][];
            /**
             * Segments Total
             * @description Parts of the whole request.
             */
            readonly segments_total: number;
            /** Sent At */
            readonly sent_at: string;
            /** Tokens */
            readonly tokens: number;
            /** Turn Id */
            readonly turn_id: string;
        };
        /**
         * SearchIn
         * @description What to look for. `from` is inclusive and `to` is not; without `targets` all kinds of texts are searched.
         */
        readonly SearchIn: {
            /**
             * Compare
             * @description With `words only`, a hit has one of the words at least; otherwise any text may be one.
             * @default meanings and words
             * @enum {string}
             */
            readonly compare?: "meanings and words" | "words only";
            /**
             * Conversation Id
             * @description Only in this conversation.
             */
            readonly conversation_id?: string | null;
            /**
             * Cursor
             * @description The `next_cursor` of the page before; good for an hour.
             */
            readonly cursor?: string | null;
            /** From */
            readonly from?: string | null;
            /**
             * Limit
             * @description Hits of a page.
             * @default 10
             */
            readonly limit?: number;
            /**
             * Query
             * @example which region sold most
             */
            readonly query: string;
            /** Targets */
            readonly targets?: readonly ("user" | "assistant" | "summary" | "notes" | "attachment")[] | null;
            /** To */
            readonly to?: string | null;
        };
        /**
         * SearchOut
         * @description The best first. `compared` says whether meanings were compared, or only words.
         */
        readonly SearchOut: {
            /**
             * Compared
             * @enum {string}
             */
            readonly compared: "meanings and words" | "words only";
            /** Items */
            readonly items: readonly components["schemas"]["HitOut"][];
            /** Next Cursor */
            readonly next_cursor?: string;
        };
        /**
         * SegmentOut
         * @description One part of the input.
         *
         *     `cache` is what the provider could do with it: `read` where the round before began with the same parts up to a
         *     cache point, `write` up to this request's last cache point, `none` behind it, `unknown` in a turn's first round.
         *     `text` is null where it can't be rebuilt, and `note` then says why.
         */
        readonly SegmentOut: {
            /**
             * Cache
             * @enum {string}
             */
            readonly cache: "read" | "write" | "none" | "unknown";
            /** Cache Point */
            readonly cache_point: boolean;
            /** Chars */
            readonly chars: number;
            /** Form */
            readonly form?: string;
            /** Index */
            readonly index: number;
            /** Note */
            readonly note?: string;
            /**
             * Origin
             * @enum {string}
             */
            readonly origin: "system" | "block" | "media" | "tail";
            /** Ref */
            readonly ref?: string;
            /** Sha256 */
            readonly sha256: string;
            /** Text */
            readonly text?: string;
            /** Tokens */
            readonly tokens: number;
        };
        /**
         * SignalOut
         * @description A signal with its receipt.
         */
        readonly SignalOut: {
            /** Conversation Id */
            readonly conversation_id: string;
            readonly signal: components["schemas"]["SignalView"];
            /** Turn Id */
            readonly turn_id?: string;
        };
        /**
         * SignalPatch
         * @description A new text for a signal that was not applied yet.
         */
        readonly SignalPatch: {
            /** Text */
            readonly text: string;
        };
        /**
         * SignalView
         * @description A signal with its receipt. An event that waits for the next turn is `queued`; `event` is there for events.
         *
         *     `approval_id` is there for answers to an approval, whose `text` is the reason.
         */
        readonly SignalView: {
            /** Approval Id */
            readonly approval_id?: string;
            /** Attachments */
            readonly attachments: readonly components["schemas"]["FileView"][];
            readonly event?: components["schemas"]["EventView"];
            /**
             * Kind
             * @enum {string}
             */
            readonly kind: "followup" | "steer" | "cancel" | "event" | "approve" | "deny" | "unknown";
            /** Promoted To */
            readonly promoted_to?: string;
            /** Round */
            readonly round?: number;
            /** Signal Id */
            readonly signal_id: string;
            /**
             * State
             * @enum {string}
             */
            readonly state: "accepted" | "queued" | "applied" | "promoted" | "expired" | "rejected" | "retracted" | "unknown";
            /** Text */
            readonly text: string;
        };
        /**
         * SourceView
         * @description One row of the source pool. `text` is the beginning of its text, which has `text_chars` characters.
         */
        readonly SourceView: {
            /** Favicon Url */
            readonly favicon_url?: string;
            /** Mime */
            readonly mime: string;
            /** Objective Relevance */
            readonly objective_relevance?: number;
            /** Published Time Iso */
            readonly published_time_iso?: string;
            /** Sid */
            readonly sid: number;
            /**
             * Source Type
             * @enum {string}
             */
            readonly source_type: "web" | "file" | "attachment" | "manual";
            /** Text */
            readonly text: string;
            /** Text Chars */
            readonly text_chars: number;
            /** Title */
            readonly title: string;
            /** Url */
            readonly url: string;
            /** Used */
            readonly used: boolean;
        };
        /**
         * StepDetail
         * @description One step with what the view of its turn cuts: the whole program, all parameters and the result.
         *
         *     `result` is the text that the model was given. `code_ref` and `result_ref` name the blocks of the timeline. `log` is
         *     what a program printed, where that is more than its result shows.
         */
        readonly StepDetail: {
            /** Call Id */
            readonly call_id?: string;
            /** Code */
            readonly code?: string;
            /** Code Chars */
            readonly code_chars?: number;
            /** Code Ref */
            readonly code_ref?: string;
            /** Duration Ms */
            readonly duration_ms?: number;
            /** Error */
            readonly error?: string;
            readonly log?: components["schemas"]["FileView"];
            /** Params */
            readonly params?: {
                readonly [key: string]: unknown;
            };
            /** Result */
            readonly result?: string;
            /** Result Preview */
            readonly result_preview?: string;
            /** Result Ref */
            readonly result_ref?: string;
            /** Round */
            readonly round: number;
            /**
             * Status
             * @enum {string}
             */
            readonly status: "started" | "completed" | "error";
            /** Step */
            readonly step: string;
            /** Title */
            readonly title: string;
            /** Tool Id */
            readonly tool_id?: string;
        };
        /**
         * StepStatus
         * @description What became of a step.
         * @enum {string}
         */
        readonly StepStatus: "pending" | "in_progress" | "done" | "failed";
        /**
         * StepView
         * @description One step of the work, such as a tool call. `step` is its key in the turn; `duration_ms` once it ended.
         *
         *     `code` is the beginning of the program that the call runs and `code_chars` the length of the whole program. Both are
         *     absent for calls without a program. The detail of the step has the whole program.
         */
        readonly StepView: {
            /** Call Id */
            readonly call_id?: string;
            /** Code */
            readonly code?: string;
            /** Code Chars */
            readonly code_chars?: number;
            /** Duration Ms */
            readonly duration_ms?: number;
            /** Error */
            readonly error?: string;
            /** Params */
            readonly params?: {
                readonly [key: string]: unknown;
            };
            /** Result Preview */
            readonly result_preview?: string;
            /** Round */
            readonly round: number;
            /**
             * Status
             * @enum {string}
             */
            readonly status: "started" | "completed" | "error";
            /** Step */
            readonly step: string;
            /** Title */
            readonly title: string;
            /** Tool Id */
            readonly tool_id?: string;
        };
        /**
         * SummaryOut
         * @description `satisfaction` is ok / (ok + not_ok + neutral) of people's judgements; null where nothing was judged.
         */
        readonly SummaryOut: {
            /** Conversations */
            readonly conversations: number;
            readonly machine: components["schemas"]["CountsOut"];
            /** Machine Confidence */
            readonly machine_confidence?: number;
            /** Satisfaction */
            readonly satisfaction?: number;
            /**
             * Scope
             * @enum {string}
             */
            readonly scope: "own" | "project";
            /** Turns */
            readonly turns: number;
            readonly user: components["schemas"]["CountsOut"];
        };
        /**
         * TextView
         * @description Streamed text. One per (round, channel, instance); `marker` tells a client where it belongs.
         */
        readonly TextView: {
            /** Artifact */
            readonly artifact?: string;
            /** Channel */
            readonly channel: string;
            /**
             * Format
             * @enum {string}
             */
            readonly format: "markdown" | "text" | "html" | "json" | "code";
            /** Instance */
            readonly instance: number;
            /** Marker */
            readonly marker: string;
            /** Round */
            readonly round: number;
            /** Text */
            readonly text: string;
        };
        /**
         * TicketOut
         * @description `ticket` opens the conversation's events as `?ticket=`, until `expires_at` (UTC, RFC 3339).
         */
        readonly TicketOut: {
            /** Expires At */
            readonly expires_at: string;
            /** Ticket */
            readonly ticket: string;
        };
        /**
         * TimelineView
         * @description The blocks of the turns that were asked for, and all sources of the conversation by `sid`.
         */
        readonly TimelineView: {
            /** Blocks */
            readonly blocks: readonly components["schemas"]["BlockView"][];
            /** Conversation Id */
            readonly conversation_id: string;
            /** Conversation Started At */
            readonly conversation_started_at: string;
            /** Conversation Title */
            readonly conversation_title: string;
            /** Last Activity At */
            readonly last_activity_at: string;
            /** Sources Pool */
            readonly sources_pool: readonly components["schemas"]["SourceView"][];
            /** Turn Ids */
            readonly turn_ids: readonly string[];
            /**
             * Version
             * @constant
             */
            readonly version: 1;
        };
        /**
         * TurnIndexView
         * @description One turn. Times are ISO 8601 in UTC; `outcome` is null while it runs. `more` tells that blocks are left out.
         */
        readonly TurnIndexView: {
            /** Artifacts */
            readonly artifacts: readonly components["schemas"]["IndexedFile"][];
            /** Ended At */
            readonly ended_at?: string;
            /** Events */
            readonly events: readonly components["schemas"]["IndexEntry"][];
            /** Messages */
            readonly messages: readonly components["schemas"]["IndexEntry"][];
            /** More */
            readonly more: boolean;
            /** Notes */
            readonly notes: readonly components["schemas"]["IndexEntry"][];
            /** Outcome */
            readonly outcome?: string;
            /** Ref */
            readonly ref: string;
            /** Sources */
            readonly sources: readonly string[];
            /** Started At */
            readonly started_at?: string;
            /** Summaries */
            readonly summaries: readonly components["schemas"]["IndexEntry"][];
            /** Tools */
            readonly tools: readonly components["schemas"]["IndexedCall"][];
            /** Turn Id */
            readonly turn_id: string;
        };
        /**
         * TurnLogView
         * @description What one turn left: its blocks by `seq`, the sources its answers cite, and its tokens, input and output.
         */
        readonly TurnLogView: {
            /** Blocks Count */
            readonly blocks_count: number;
            /** End Ts */
            readonly end_ts?: string;
            /** First Seq */
            readonly first_seq?: number;
            /** Last Seq */
            readonly last_seq?: number;
            /** Sources Used */
            readonly sources_used: readonly number[];
            /** Tokens */
            readonly tokens: number;
            /** Ts */
            readonly ts: string;
            /** Turn Id */
            readonly turn_id: string;
        };
        /**
         * TurnOut
         * @description A turn. While it waits, it has its `position` as a conversation has.
         */
        readonly TurnOut: {
            /** Answer */
            readonly answer?: string;
            /** Approvals */
            readonly approvals: readonly components["schemas"]["ApprovalView"][];
            /** Attachments */
            readonly attachments: readonly components["schemas"]["FileView"][];
            /** Citations */
            readonly citations: readonly components["schemas"]["CitationView"][];
            /** Created At */
            readonly created_at: string;
            /**
             * Cut Reason
             * @enum {string}
             */
            readonly cut_reason?: "length" | "content_filter" | "refusal" | "size_limit" | "incomplete" | "provider_error" | "server_error";
            /** Elapsed Ms */
            readonly elapsed_ms?: number;
            readonly error?: components["schemas"]["Problem"];
            /** Feedback */
            readonly feedback: readonly components["schemas"]["FeedbackView"][];
            /** Files */
            readonly files: readonly components["schemas"]["FileView"][];
            /** Followups */
            readonly followups: readonly string[];
            /** Ordinal */
            readonly ordinal: number;
            /**
             * Outcome
             * @enum {string}
             */
            readonly outcome?: "completed" | "stopped" | "cancelled" | "capped" | "cut" | "unknown";
            /** Plans */
            readonly plans: readonly components["schemas"]["PlanSnapshot"][];
            /** Position */
            readonly position?: number;
            /** Position More */
            readonly position_more?: boolean;
            /** Rounds */
            readonly rounds: number;
            /** Sealed Round */
            readonly sealed_round: number;
            /** Signals */
            readonly signals: readonly components["schemas"]["SignalView"][];
            /** Sources Used */
            readonly sources_used: readonly number[];
            /**
             * Status
             * @enum {string}
             */
            readonly status: "queued" | "running" | "waiting" | "completed" | "failed" | "cancelled" | "unknown";
            /** Steps */
            readonly steps: readonly components["schemas"]["StepView"][];
            /** Text */
            readonly text: string;
            /** Texts */
            readonly texts: readonly components["schemas"]["TextView"][];
            /** Turn Id */
            readonly turn_id: string;
            readonly usage?: components["schemas"]["TurnUsage"];
        };
        /**
         * TurnUsage
         * @description Sums over a turn's model calls. Cost in US dollars.
         *
         *     `cost_known` is false when one of the calls has no price; `cost_usd` is then the sum of the others.
         */
        readonly TurnUsage: {
            /** Cache Read Tokens */
            readonly cache_read_tokens: number;
            /** Cost Known */
            readonly cost_known: boolean;
            /** Cost Usd */
            readonly cost_usd: number;
            /** Input Tokens */
            readonly input_tokens: number;
            /** Output Tokens */
            readonly output_tokens: number;
        };
        /**
         * TurnView
         * @description One turn. `sealed_round` is the last round whose texts are committed; `answer` is the latest completion as shown.
         *
         *     `elapsed_ms` counts from the turn's start to its end. `cut_reason` says why the answer stops before its end; a
         *     followup lets the model go on from there.
         */
        readonly TurnView: {
            /** Answer */
            readonly answer?: string;
            /** Approvals */
            readonly approvals: readonly components["schemas"]["ApprovalView"][];
            /** Attachments */
            readonly attachments: readonly components["schemas"]["FileView"][];
            /** Citations */
            readonly citations: readonly components["schemas"]["CitationView"][];
            /** Created At */
            readonly created_at: string;
            /**
             * Cut Reason
             * @enum {string}
             */
            readonly cut_reason?: "length" | "content_filter" | "refusal" | "size_limit" | "incomplete" | "provider_error" | "server_error";
            /** Elapsed Ms */
            readonly elapsed_ms?: number;
            readonly error?: components["schemas"]["Problem"];
            /** Feedback */
            readonly feedback: readonly components["schemas"]["FeedbackView"][];
            /** Files */
            readonly files: readonly components["schemas"]["FileView"][];
            /** Followups */
            readonly followups: readonly string[];
            /** Ordinal */
            readonly ordinal: number;
            /**
             * Outcome
             * @enum {string}
             */
            readonly outcome?: "completed" | "stopped" | "cancelled" | "capped" | "cut" | "unknown";
            /** Plans */
            readonly plans: readonly components["schemas"]["PlanSnapshot"][];
            /** Rounds */
            readonly rounds: number;
            /** Sealed Round */
            readonly sealed_round: number;
            /** Signals */
            readonly signals: readonly components["schemas"]["SignalView"][];
            /** Sources Used */
            readonly sources_used: readonly number[];
            /**
             * Status
             * @enum {string}
             */
            readonly status: "queued" | "running" | "waiting" | "completed" | "failed" | "cancelled" | "unknown";
            /** Steps */
            readonly steps: readonly components["schemas"]["StepView"][];
            /** Text */
            readonly text: string;
            /** Texts */
            readonly texts: readonly components["schemas"]["TextView"][];
            /** Turn Id */
            readonly turn_id: string;
            readonly usage?: components["schemas"]["TurnUsage"];
        };
        /**
         * TurnsIn
         * @description Which turns to read; without `turn_ids` the last ones.
         */
        readonly TurnsIn: {
            /** Turn Ids */
            readonly turn_ids?: readonly string[] | null;
        };
        /**
         * TurnsOut
         * @description Turns that somebody judged.
         */
        readonly TurnsOut: {
            /** Conversation Id */
            readonly conversation_id: string;
            /** Turns */
            readonly turns: readonly components["schemas"]["TurnView"][];
        };
        /**
         * WorkerOut
         * @description One worker; `sandbox` is the launcher of its programs, empty where it runs none.
         */
        readonly WorkerOut: {
            /** Battery */
            readonly battery: components["schemas"]["BatteryOut"] | "not run";
            /** Id */
            readonly id: string;
            /** Sandbox */
            readonly sandbox: string;
            /** Slots */
            readonly slots: number;
        };
        /**
         * Problem
         * @description RFC 9457 problem details. `type` is stable.
         */
        readonly ProblemDetails: {
            readonly detail: string;
            readonly errors?: readonly {
                readonly field: string;
                readonly message: string;
            }[];
            readonly instance?: string;
            readonly status: number;
            readonly title: string;
            /** Format: uri */
            readonly type: string;
        };
        /**
         * ChatApproval
         * @description A person is asked about a call before it is made, or was. `state` moves once, from `pending`.
         */
        readonly ChatApproval: {
            /** Approval Id */
            readonly approval_id: string;
            /** Call Id */
            readonly call_id: string;
            /** Cut */
            readonly cut: boolean;
            /** Expires At */
            readonly expires_at: string;
            /** Explanation */
            readonly explanation: string;
            /** Params */
            readonly params: {
                readonly [key: string]: unknown;
            };
            /** Reason */
            readonly reason: string;
            /**
             * State
             * @enum {string}
             */
            readonly state: "pending" | "approved" | "denied" | "expired" | "withdrawn";
            /** Tool Id */
            readonly tool_id: string;
        };
        /**
         * ChatApprovalEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatApprovalEvent: {
            /** Conversation Id */
            readonly conversation_id: string;
            readonly data: components["schemas"]["ChatApproval"];
            /** Id */
            readonly id?: string;
            /** Round */
            readonly round?: number;
            /** Ts */
            readonly ts: string;
            /** Turn Id */
            readonly turn_id?: string;
            /** @constant */
            readonly type: "chat.approval";
        };
        /**
         * ChatCitations
         * @description Sources that the answer cites; images are none.
         */
        readonly ChatCitations: {
            /** Sources */
            readonly sources: readonly components["schemas"]["CitationView"][];
        };
        /**
         * ChatCitationsEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatCitationsEvent: {
            /** Conversation Id */
            readonly conversation_id: string;
            readonly data: components["schemas"]["ChatCitations"];
            /** Id */
            readonly id?: string;
            /** Round */
            readonly round?: number;
            /** Ts */
            readonly ts: string;
            /** Turn Id */
            readonly turn_id?: string;
            /** @constant */
            readonly type: "chat.citations";
        };
        /**
         * ChatCompaction
         * @description Older blocks are summarized so that the model's request fits. Tokens are estimates of the whole request.
         *
         *     `started` is followed by exactly one `completed` or `skipped`. `reason` is a word for why it began, or was skipped.
         */
        readonly ChatCompaction: {
            /** After Tokens */
            readonly after_tokens?: number;
            /** Before Tokens */
            readonly before_tokens: number;
            /** Reason */
            readonly reason: string;
            /**
             * Status
             * @enum {string}
             */
            readonly status: "started" | "completed" | "skipped";
        };
        /**
         * ChatCompactionEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatCompactionEvent: {
            /** Conversation Id */
            readonly conversation_id: string;
            readonly data: components["schemas"]["ChatCompaction"];
            /** Id */
            readonly id?: string;
            /** Round */
            readonly round?: number;
            /** Ts */
            readonly ts: string;
            /** Turn Id */
            readonly turn_id?: string;
            /** @constant */
            readonly type: "chat.compaction";
        };
        /**
         * ChatComplete
         * @description The turn ended without an error. `cut_reason` says why the answer stops before its end, if it does.
         *
         *     It is always set with the outcome `cut`, and with `capped` when the closing answer was cut too.
         */
        readonly ChatComplete: {
            /** Answer */
            readonly answer?: string;
            /**
             * Cut Reason
             * @enum {string}
             */
            readonly cut_reason?: "length" | "content_filter" | "refusal" | "size_limit" | "incomplete" | "provider_error" | "server_error";
            /** Elapsed Ms */
            readonly elapsed_ms: number;
            /** Followups */
            readonly followups: readonly string[];
            /**
             * Outcome
             * @enum {string}
             */
            readonly outcome: "completed" | "stopped" | "cancelled" | "capped" | "cut" | "unknown";
            /** Rounds */
            readonly rounds: number;
            /** Sources Used */
            readonly sources_used: readonly number[];
            readonly usage: components["schemas"]["TurnUsage"];
        };
        /**
         * ChatCompleteEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatCompleteEvent: {
            /** Conversation Id */
            readonly conversation_id: string;
            readonly data: components["schemas"]["ChatComplete"];
            /** Id */
            readonly id?: string;
            /** Round */
            readonly round?: number;
            /** Ts */
            readonly ts: string;
            /** Turn Id */
            readonly turn_id?: string;
            /** @constant */
            readonly type: "chat.complete";
        };
        /**
         * ChatDelta
         * @description More text of one channel instance. `index` counts the pieces of that instance from 0; `completed` ends it.
         */
        readonly ChatDelta: {
            /** Artifact */
            readonly artifact?: string;
            /** Channel */
            readonly channel: string;
            /** Completed */
            readonly completed: boolean;
            /**
             * Format
             * @enum {string}
             */
            readonly format: "markdown" | "text" | "html" | "json" | "code";
            /** Index */
            readonly index: number;
            /** Instance */
            readonly instance: number;
            /** Marker */
            readonly marker: string;
            /** Text */
            readonly text: string;
        };
        /**
         * ChatDeltaEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatDeltaEvent: {
            /** Conversation Id */
            readonly conversation_id: string;
            readonly data: components["schemas"]["ChatDelta"];
            /** Id */
            readonly id?: string;
            /** Round */
            readonly round?: number;
            /** Ts */
            readonly ts: string;
            /** Turn Id */
            readonly turn_id?: string;
            /** @constant */
            readonly type: "chat.delta";
        };
        /**
         * ChatError
         * @description The turn failed; the work so far stays. The counts are as in ChatComplete.
         */
        readonly ChatError: {
            /** Elapsed Ms */
            readonly elapsed_ms: number;
            readonly problem: components["schemas"]["Problem"];
            /** Rounds */
            readonly rounds: number;
            readonly usage: components["schemas"]["TurnUsage"];
        };
        /**
         * ChatErrorEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatErrorEvent: {
            /** Conversation Id */
            readonly conversation_id: string;
            readonly data: components["schemas"]["ChatError"];
            /** Id */
            readonly id?: string;
            /** Round */
            readonly round?: number;
            /** Ts */
            readonly ts: string;
            /** Turn Id */
            readonly turn_id?: string;
            /** @constant */
            readonly type: "chat.error";
        };
        /**
         * ChatFiles
         * @description Files for the person.
         */
        readonly ChatFiles: {
            /** Files */
            readonly files: readonly components["schemas"]["FileView"][];
        };
        /**
         * ChatFilesEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatFilesEvent: {
            /** Conversation Id */
            readonly conversation_id: string;
            readonly data: components["schemas"]["ChatFiles"];
            /** Id */
            readonly id?: string;
            /** Round */
            readonly round?: number;
            /** Ts */
            readonly ts: string;
            /** Turn Id */
            readonly turn_id?: string;
            /** @constant */
            readonly type: "chat.files";
        };
        /**
         * ChatFollowups
         * @description What the person might ask next.
         */
        readonly ChatFollowups: {
            /** Items */
            readonly items: readonly string[];
        };
        /**
         * ChatFollowupsEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatFollowupsEvent: {
            /** Conversation Id */
            readonly conversation_id: string;
            readonly data: components["schemas"]["ChatFollowups"];
            /** Id */
            readonly id?: string;
            /** Round */
            readonly round?: number;
            /** Ts */
            readonly ts: string;
            /** Turn Id */
            readonly turn_id?: string;
            /** @constant */
            readonly type: "chat.followups";
        };
        /**
         * ChatPhase
         * @description What a turn waits for while nothing else can be shown. It holds until the turn's next event of another type.
         *
         *     `model_waiting`: the model has been silent for `waited_ms`; told again every few seconds. `model_retrying`: a call
         *     failed because of `reason` and is repeated in `retry_in_ms`; `attempt` of `max_attempts` is the next one.
         *     `model_fallback`: the fallback model is called instead. `model_replying`: the model writes something that is not
         *     shown yet. Nothing keeps it: a snapshot does not have it.
         */
        readonly ChatPhase: {
            /** Attempt */
            readonly attempt?: number;
            /** Max Attempts */
            readonly max_attempts?: number;
            /**
             * Phase
             * @enum {string}
             */
            readonly phase: "model_waiting" | "model_retrying" | "model_fallback" | "model_replying";
            /** Reason */
            readonly reason?: string;
            /** Retry In Ms */
            readonly retry_in_ms?: number;
            /** Waited Ms */
            readonly waited_ms?: number;
        };
        /**
         * ChatPhaseEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatPhaseEvent: {
            /** Conversation Id */
            readonly conversation_id: string;
            readonly data: components["schemas"]["ChatPhase"];
            /** Id */
            readonly id?: string;
            /** Round */
            readonly round?: number;
            /** Ts */
            readonly ts: string;
            /** Turn Id */
            readonly turn_id?: string;
            /** @constant */
            readonly type: "chat.phase";
        };
        /**
         * ChatPlan
         * @description A plan changed; the snapshot replaces the one with the same id.
         */
        readonly ChatPlan: {
            readonly plan: components["schemas"]["PlanSnapshot"];
        };
        /**
         * ChatPlanEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatPlanEvent: {
            /** Conversation Id */
            readonly conversation_id: string;
            readonly data: components["schemas"]["ChatPlan"];
            /** Id */
            readonly id?: string;
            /** Round */
            readonly round?: number;
            /** Ts */
            readonly ts: string;
            /** Turn Id */
            readonly turn_id?: string;
            /** @constant */
            readonly type: "chat.plan";
        };
        /**
         * ChatRewind
         * @description The committed state of a turn; replaces all the client has of it, except receipts that it does not know.
         */
        readonly ChatRewind: {
            readonly turn: components["schemas"]["TurnView"];
        };
        /**
         * ChatRewindEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatRewindEvent: {
            /** Conversation Id */
            readonly conversation_id: string;
            readonly data: components["schemas"]["ChatRewind"];
            /** Id */
            readonly id?: string;
            /** Round */
            readonly round?: number;
            /** Ts */
            readonly ts: string;
            /** Turn Id */
            readonly turn_id?: string;
            /** @constant */
            readonly type: "chat.rewind";
        };
        /**
         * ChatSignal
         * @description A signal's receipt moved.
         */
        readonly ChatSignal: {
            /** Approval Id */
            readonly approval_id?: string;
            /** Attachments */
            readonly attachments: readonly components["schemas"]["FileView"][];
            readonly event?: components["schemas"]["EventView"];
            /**
             * Kind
             * @enum {string}
             */
            readonly kind: "followup" | "steer" | "cancel" | "event" | "approve" | "deny" | "unknown";
            /** Promoted To */
            readonly promoted_to?: string;
            /** Round */
            readonly round?: number;
            /** Signal Id */
            readonly signal_id: string;
            /**
             * State
             * @enum {string}
             */
            readonly state: "accepted" | "queued" | "applied" | "promoted" | "expired" | "rejected" | "retracted" | "unknown";
            /** Text */
            readonly text: string;
        };
        /**
         * ChatSignalEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatSignalEvent: {
            /** Conversation Id */
            readonly conversation_id: string;
            readonly data: components["schemas"]["ChatSignal"];
            /** Id */
            readonly id?: string;
            /** Round */
            readonly round?: number;
            /** Ts */
            readonly ts: string;
            /** Turn Id */
            readonly turn_id?: string;
            /** @constant */
            readonly type: "chat.signal";
        };
        /**
         * ChatStart
         * @description A turn starts.
         */
        readonly ChatStart: {
            /** Attachments */
            readonly attachments: readonly components["schemas"]["FileView"][];
            /** Created At */
            readonly created_at: string;
            /** Ordinal */
            readonly ordinal: number;
            /** Text */
            readonly text: string;
            /** Turn Id */
            readonly turn_id: string;
        };
        /**
         * ChatStartEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatStartEvent: {
            /** Conversation Id */
            readonly conversation_id: string;
            readonly data: components["schemas"]["ChatStart"];
            /** Id */
            readonly id?: string;
            /** Round */
            readonly round?: number;
            /** Ts */
            readonly ts: string;
            /** Turn Id */
            readonly turn_id?: string;
            /** @constant */
            readonly type: "chat.start";
        };
        /**
         * ChatStep
         * @description A step began or ended. `step` is its key in the turn. Only its beginning has `code`, as in StepView.
         */
        readonly ChatStep: {
            /** Call Id */
            readonly call_id?: string;
            /** Code */
            readonly code?: string;
            /** Code Chars */
            readonly code_chars?: number;
            /** Duration Ms */
            readonly duration_ms?: number;
            /** Error */
            readonly error?: string;
            /** Params */
            readonly params?: {
                readonly [key: string]: unknown;
            };
            /** Ref */
            readonly ref?: string;
            /** Result Preview */
            readonly result_preview?: string;
            /**
             * Status
             * @enum {string}
             */
            readonly status: "started" | "completed" | "error";
            /** Step */
            readonly step: string;
            /** Title */
            readonly title: string;
            /** Tool Id */
            readonly tool_id?: string;
        };
        /**
         * ChatStepEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatStepEvent: {
            /** Conversation Id */
            readonly conversation_id: string;
            readonly data: components["schemas"]["ChatStep"];
            /** Id */
            readonly id?: string;
            /** Round */
            readonly round?: number;
            /** Ts */
            readonly ts: string;
            /** Turn Id */
            readonly turn_id?: string;
            /** @constant */
            readonly type: "chat.step";
        };
        /**
         * ChatTool
         * @description A tool that is running tells of its work. Nothing keeps it: who comes later sees the call's step only.
         *
         *     `kind` is `progress` (`text` is what goes on now), `message` (`text` is for the person), or `data` (`data` is for a
         *     client that knows the tool).
         */
        readonly ChatTool: {
            /** Call Id */
            readonly call_id: string;
            /** Data */
            readonly data?: {
                readonly [key: string]: unknown;
            };
            /**
             * Kind
             * @enum {string}
             */
            readonly kind: "progress" | "message" | "data";
            /** Text */
            readonly text: string;
            /** Tool Id */
            readonly tool_id: string;
        };
        /**
         * ChatToolEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatToolEvent: {
            /** Conversation Id */
            readonly conversation_id: string;
            readonly data: components["schemas"]["ChatTool"];
            /** Id */
            readonly id?: string;
            /** Round */
            readonly round?: number;
            /** Ts */
            readonly ts: string;
            /** Turn Id */
            readonly turn_id?: string;
            /** @constant */
            readonly type: "chat.tool";
        };
        /**
         * ConvStatus
         * @description The conversation changed its state. `position` is how many turns are taken before a queued one, 0 for the next.
         *
         *     It comes again while it changes, at most once a second; with `position_more` there are more than that.
         */
        readonly ConvStatus: {
            /** Position */
            readonly position?: number;
            /** Position More */
            readonly position_more?: boolean;
            /**
             * State
             * @enum {string}
             */
            readonly state: "idle" | "queued" | "running" | "waiting" | "error" | "unknown";
            /** Turn Id */
            readonly turn_id?: string;
        };
        /**
         * ConvStatusEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ConvStatusEvent: {
            /** Conversation Id */
            readonly conversation_id: string;
            readonly data: components["schemas"]["ConvStatus"];
            /** Id */
            readonly id?: string;
            /** Round */
            readonly round?: number;
            /** Ts */
            readonly ts: string;
            /** Turn Id */
            readonly turn_id?: string;
            /** @constant */
            readonly type: "conv.status";
        };
        /**
         * ConvTitle
         * @description The conversation got a title.
         */
        readonly ConvTitle: {
            /** Title */
            readonly title: string;
        };
        /**
         * ConvTitleEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ConvTitleEvent: {
            /** Conversation Id */
            readonly conversation_id: string;
            readonly data: components["schemas"]["ConvTitle"];
            /** Id */
            readonly id?: string;
            /** Round */
            readonly round?: number;
            /** Ts */
            readonly ts: string;
            /** Turn Id */
            readonly turn_id?: string;
            /** @constant */
            readonly type: "conv.title";
        };
        readonly Event: components["schemas"]["ReadyEvent"] | components["schemas"]["ConvStatusEvent"] | components["schemas"]["ConvTitleEvent"] | components["schemas"]["ChatStartEvent"] | components["schemas"]["ChatStepEvent"] | components["schemas"]["ChatDeltaEvent"] | components["schemas"]["ChatPlanEvent"] | components["schemas"]["ChatFilesEvent"] | components["schemas"]["ChatCitationsEvent"] | components["schemas"]["ChatFollowupsEvent"] | components["schemas"]["ChatCompactionEvent"] | components["schemas"]["ChatPhaseEvent"] | components["schemas"]["ChatToolEvent"] | components["schemas"]["ChatSignalEvent"] | components["schemas"]["ChatApprovalEvent"] | components["schemas"]["ChatRewindEvent"] | components["schemas"]["ChatCompleteEvent"] | components["schemas"]["ChatErrorEvent"] | components["schemas"]["StreamSnapshotEvent"] | components["schemas"]["StreamGapEvent"] | components["schemas"]["ServerShutdownEvent"];
        /**
         * Ready
         * @description The stream is open; `cursor` is where it begins.
         */
        readonly Ready: {
            /** Cursor */
            readonly cursor?: string;
        };
        /**
         * ReadyEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ReadyEvent: {
            /** Conversation Id */
            readonly conversation_id: string;
            readonly data: components["schemas"]["Ready"];
            /** Id */
            readonly id?: string;
            /** Round */
            readonly round?: number;
            /** Ts */
            readonly ts: string;
            /** Turn Id */
            readonly turn_id?: string;
            /** @constant */
            readonly type: "ready";
        };
        /**
         * ServerShutdown
         * @description This server is going away; reconnect after `retry_ms`.
         */
        readonly ServerShutdown: {
            /** Retry Ms */
            readonly retry_ms: number;
        };
        /**
         * ServerShutdownEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ServerShutdownEvent: {
            /** Conversation Id */
            readonly conversation_id: string;
            readonly data: components["schemas"]["ServerShutdown"];
            /** Id */
            readonly id?: string;
            /** Round */
            readonly round?: number;
            /** Ts */
            readonly ts: string;
            /** Turn Id */
            readonly turn_id?: string;
            /** @constant */
            readonly type: "server.shutdown";
        };
        /**
         * StateView
         * @description A conversation with its last turns, oldest first; `cursor` is the event id the state includes.
         *
         *     `next_cursor` is where older turns go on, None when there are none.
         */
        readonly StateView: {
            readonly conversation: components["schemas"]["ConversationView"];
            /** Cursor */
            readonly cursor: string;
            /** Next Cursor */
            readonly next_cursor?: string;
            /** Turns */
            readonly turns: readonly components["schemas"]["TurnView"][];
        };
        /**
         * StreamGap
         * @description Events between `after` and `oldest` can't be had any more; a snapshot follows.
         */
        readonly StreamGap: {
            /** After */
            readonly after: string;
            /** Oldest */
            readonly oldest?: string;
        };
        /**
         * StreamGapEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly StreamGapEvent: {
            /** Conversation Id */
            readonly conversation_id: string;
            readonly data: components["schemas"]["StreamGap"];
            /** Id */
            readonly id?: string;
            /** Round */
            readonly round?: number;
            /** Ts */
            readonly ts: string;
            /** Turn Id */
            readonly turn_id?: string;
            /** @constant */
            readonly type: "stream.gap";
        };
        /**
         * StreamSnapshot
         * @description The state to start from; replaces all the client has.
         */
        readonly StreamSnapshot: {
            readonly state: components["schemas"]["StateView"];
        };
        /**
         * StreamSnapshotEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly StreamSnapshotEvent: {
            /** Conversation Id */
            readonly conversation_id: string;
            readonly data: components["schemas"]["StreamSnapshot"];
            /** Id */
            readonly id?: string;
            /** Round */
            readonly round?: number;
            /** Ts */
            readonly ts: string;
            /** Turn Id */
            readonly turn_id?: string;
            /** @constant */
            readonly type: "stream.snapshot";
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export type operations = Record<string, never>;
