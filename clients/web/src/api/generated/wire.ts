// Made by `npm run make-types`; never edited.
// Schemas 3874b14925920aaeb2d59693c6942d0b9d97d4a59ffac08824d35fd2de8195fb
// Types 61b775ff57a807f8b32e3161c58b1c7301643f8e47c1667d23118db6ae43f1b3
export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * AcceptedOut
         * @description The message is stored and will be answered. `signal_id` is set if it was added to the running turn `turn_id`.
         *
         *     An event that is only recorded has no `turn_id` in an idle conversation: it waits for the next turn.
         */
        readonly AcceptedOut: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /**
             * Events Url
             * @description Where the events of the conversation are streamed.
             */
            readonly events_url: string;
            /** @description How far it has been processed. */
            readonly receipt: components["schemas"]["ReceiptOut"];
            /**
             * Signal Id
             * @description The signal's id.
             */
            readonly signal_id?: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id?: string;
        };
        /**
         * ApprovalView
         * @description A call that needs a person's approval.
         *
         *     `params` are those of the call without secrets; `cut` means that some are left out. The approval counts as denied at
         *     `expires_at`. `explanation` says why approval is needed, and is empty if the tool always needs it. `reason` is the
         *     person's. With `connect_url` the person does not approve the call but connects an account at this address; the turn
         *     then continues by itself.
         */
        readonly ApprovalView: {
            /**
             * Approval Id
             * @description The id of the approval.
             */
            readonly approval_id: string;
            /**
             * Call Id
             * @description The id of the tool call.
             */
            readonly call_id: string;
            /**
             * Connect Url
             * @description The address at which the person connects an account, instead of approving the call.
             */
            readonly connect_url?: string;
            /**
             * Cut
             * @description Whether `params` are incomplete because they are too long.
             */
            readonly cut: boolean;
            /**
             * Details
             * @description What the call would do, as lines of plain text; absent if its tool does not describe its calls.
             */
            readonly details?: string;
            /**
             * Expires At
             * @description When it expires, in ISO 8601 (UTC).
             */
            readonly expires_at: string;
            /**
             * Explanation
             * @description Why the call needs approval.
             */
            readonly explanation: string;
            /**
             * Params
             * @description The parameters of the call.
             */
            readonly params: {
                readonly [key: string]: unknown;
            };
            /**
             * Reason
             * @description What the person gave as the reason; empty without one.
             */
            readonly reason: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round: number;
            /**
             * State
             * @description What the person decided: `pending` until then; `withdrawn` if the answer is no longer needed.
             * @enum {string}
             */
            readonly state: "pending" | "approved" | "denied" | "expired" | "withdrawn";
            /**
             * Step Id
             * @description The step of a plan that the call belongs to; absent outside of such steps.
             */
            readonly step_id?: string;
            /**
             * Tool Id
             * @description The tool that is called.
             */
            readonly tool_id: string;
        };
        /**
         * AttachmentIn
         * @description A file inside a JSON message.
         */
        readonly AttachmentIn: {
            /**
             * Data Base64
             * @description The bytes in base64.
             * @example bmFtZSxzdW0KYSwxCg==
             */
            readonly data_base64: string;
            /**
             * Filename
             * @description The name of the file.
             * @example sales.csv
             */
            readonly filename: string;
            /**
             * Mime
             * @description The MIME type of the file.
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
            /**
             * At
             * @description The time, in seconds since 1970.
             */
            readonly at: number;
            /**
             * Held
             * @description How many attempts were denied.
             */
            readonly held: number;
            /**
             * Total
             * @description How many attempts there were.
             */
            readonly total: number;
        };
        /**
         * BlockView
         * @description One block as it is stored. `path` is its ref; `hash` follows from the block before it.
         */
        readonly BlockView: {
            /**
             * Author
             * @description Who wrote the block: the person, the agent or the system.
             */
            readonly author: string;
            /**
             * Body
             * @description What the block holds, by its type.
             */
            readonly body: {
                readonly [key: string]: unknown;
            };
            /**
             * Call Id
             * @description The id of the tool call.
             */
            readonly call_id?: string;
            /**
             * Hash
             * @description The block's hash, which covers the hash of the block before.
             */
            readonly hash: string;
            /**
             * Path
             * @description Its reference in the timeline.
             */
            readonly path: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round: number;
            /**
             * Seq
             * @description The number of the block in its conversation, from 1.
             */
            readonly seq: number;
            /**
             * Ts
             * @description When it happened, in ISO 8601 (UTC).
             */
            readonly ts: string;
            /**
             * Ts First
             * @description When its first part was written, in ISO 8601 and UTC.
             */
            readonly ts_first?: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id: string;
            /**
             * Type
             * @description The type of the block.
             */
            readonly type: string;
        };
        /**
         * BundleList
         * @description All bundles that the caller may use: the default one first, then by title.
         */
        readonly BundleList: {
            /**
             * Bundles
             * @description The bundles, the default one first, then by title.
             */
            readonly bundles: readonly components["schemas"]["BundleOut"][];
        };
        /**
         * BundleOut
         * @description An agent that the caller may choose, with its `id` as the `bundle_id` of a conversation or a message.
         */
        readonly BundleOut: {
            /**
             * Description
             * @description What it does, in one line; can be empty.
             * @example Answers questions about orders.
             */
            readonly description: string;
            /**
             * Error
             * @description Why its newest version is refused; null without an error, and for callers without one of these roles.
             * @example null
             */
            readonly error?: string;
            /**
             * Icon
             * @description An emoji or a few characters; can be empty.
             * @example 📦
             */
            readonly icon: string;
            /**
             * Id
             * @description The value of `bundle_id`.
             * @example support
             */
            readonly id: string;
            /**
             * Is Default
             * @description Whether it answers messages that name no bundle in conversations that have none.
             * @example true
             */
            readonly is_default: boolean;
            /**
             * Is Ready
             * @description Whether it can run; callers without the role `privileged` or `admin` get only those that can.
             * @example true
             */
            readonly is_ready: boolean;
            /**
             * Problems
             * @description What does not work in the version in use, such as MCP servers; empty for callers without these roles.
             * @example [
             *       "mcp.crm: The server does not answer."
             *     ]
             */
            readonly problems: readonly string[];
            /**
             * Starters
             * @description Messages to start a conversation with, which clients suggest.
             * @example [
             *       "Where is my order?"
             *     ]
             */
            readonly starters: readonly string[];
            /**
             * Title
             * @description The name that people see.
             * @example Support
             */
            readonly title: string;
            /**
             * Widgets
             * @description Its pages for people, by name.
             * @example [
             *       {
             *         "name": "board",
             *         "title": "Open tickets"
             *       }
             *     ]
             */
            readonly widgets: readonly components["schemas"]["WidgetOut"][];
        };
        /**
         * ByRnIn
         * @description The file to find.
         */
        readonly ByRnIn: {
            /**
             * Rn
             * @description The resource name of the file.
             * @example ef:default:default:chatbot:upload:ann:conv_01890a5d-ac96-774b-bcce-b302099a8057:turn_01890a5d-ac96-774b-bcce-b302099a8058:attachment:turn_01890a5d-ac96-774b-bcce-b302099a8058/attachments/a.csv
             */
            readonly rn: string;
        };
        /**
         * ChangedFileOut
         * @description A file that a turn changed.
         */
        readonly ChangedFileOut: {
            /**
             * Change
             * @description What happened to it.
             * @example added
             * @enum {string}
             */
            readonly change: "added" | "modified" | "deleted";
            /**
             * Path
             * @description Its path in the workspace.
             * @example src/report.py
             */
            readonly path: string;
            /**
             * Size
             * @description Its size in bytes after the turn; null if it was deleted.
             * @example 1204
             */
            readonly size?: number;
        };
        /**
         * CitationView
         * @description A source that the answer cites as [[S:sid]], as it was at that time: a page, a file or a text.
         */
        readonly CitationView: {
            /**
             * Favicon Url
             * @description The address of the site's icon.
             */
            readonly favicon_url?: string;
            /**
             * Published Time Iso
             * @description When the source was published.
             */
            readonly published_time_iso?: string;
            /**
             * Sid
             * @description The number that answers cite the source by.
             */
            readonly sid: number;
            /**
             * Source Type
             * @description What kind of source it is.
             * @enum {string}
             */
            readonly source_type: "web" | "file" | "attachment" | "manual";
            /**
             * Title
             * @description The title of the page or file.
             */
            readonly title: string;
            /**
             * Url
             * @description The address of the page, or the ref of the file.
             */
            readonly url: string;
        };
        /**
         * CollectionIn
         * @description A new collection.
         */
        readonly CollectionIn: {
            /**
             * Scope
             * @description Who may read it: its owner, or everybody in the project, which needs the role `privileged` or `admin`.
             * @default user
             * @example user
             * @enum {string}
             */
            readonly scope?: "user" | "project";
            /**
             * Title
             * @description Its name for people and agents.
             * @example Contracts
             */
            readonly title: string;
        };
        /**
         * CollectionList
         * @description The caller's own collections by title, then those that others share with the project.
         */
        readonly CollectionList: {
            /**
             * Collections
             * @description The collections.
             */
            readonly collections: readonly components["schemas"]["CollectionOut"][];
        };
        /**
         * CollectionOut
         * @description A collection that the caller may read.
         */
        readonly CollectionOut: {
            /**
             * Created At
             * @description When it was created, in ISO 8601 (UTC).
             * @example 2026-03-01T12:00:00.000Z
             */
            readonly created_at: string;
            /**
             * Documents
             * @description How many documents it has.
             * @example 12
             */
            readonly documents: number;
            /**
             * Error
             * @description Why its documents can't be indexed; null if they can.
             * @example null
             */
            readonly error?: string;
            /**
             * Id
             * @description The collection's id.
             * @example coll_01890a5d-ac96-774b-bcce-b302099a8057
             */
            readonly id: string;
            /**
             * Is Mine
             * @description Whether the caller owns it, and may change it.
             * @example true
             */
            readonly is_mine: boolean;
            /**
             * Scope
             * @description Who may read it: its owner, or everybody in the project.
             * @example user
             * @enum {string}
             */
            readonly scope: "user" | "project";
            /**
             * Title
             * @description Its name for people and agents.
             * @example Contracts
             */
            readonly title: string;
            /**
             * Waiting
             * @description How many of them agents can't find yet, because they are being indexed.
             * @example 0
             */
            readonly waiting: number;
        };
        /**
         * CollectionPatch
         * @description The new title of a collection.
         */
        readonly CollectionPatch: {
            /**
             * Title
             * @description Its name for people and agents.
             * @example Contracts 2026
             */
            readonly title: string;
        };
        /**
         * CommitList
         * @description One page of commits, newest first.
         */
        readonly CommitList: {
            /**
             * Commits
             * @description The commits.
             */
            readonly commits: readonly components["schemas"]["CommitOut"][];
            /**
             * Next Before
             * @description The `before` of the next page; null at the end.
             * @example null
             */
            readonly next_before?: string;
        };
        /**
         * CommitOut
         * @description The commit of a turn that changed files.
         */
        readonly CommitOut: {
            /**
             * Accepted At
             * @description When the message was accepted, in ISO 8601 (UTC).
             * @example 2026-03-01T12:00:00.000Z
             */
            readonly accepted_at: string;
            /**
             * Commit
             * @description The name of the commit: 40 hexadecimal digits.
             * @example 8b2f155f4d6ec5ace61571944949f85f4e1a3b9b
             */
            readonly commit: string;
            /**
             * Files
             * @description The changed files by path; at most 100.
             */
            readonly files: readonly components["schemas"]["ChangedFileOut"][];
            /**
             * More Files
             * @description How many more files the turn changed.
             * @example 0
             */
            readonly more_files: number;
            /**
             * Subject
             * @description The beginning of the turn's message, on one line.
             * @example Plot the sales by region
             */
            readonly subject: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id: string;
        };
        /**
         * ConnectionList
         * @description All connected accounts, the latest first.
         */
        readonly ConnectionList: {
            /**
             * Items
             * @description The results, in order.
             */
            readonly items: readonly components["schemas"]["ConnectionOut"][];
        };
        /**
         * ConnectionOut
         * @description An account that an agent can use.
         */
        readonly ConnectionOut: {
            /**
             * Bundle Id
             * @description The agent's id.
             * @example desk
             */
            readonly bundle_id: string;
            /**
             * Connected At
             * @description When the account was connected, in ISO 8601 and UTC.
             * @example 2026-03-01T12:00:00.000Z
             */
            readonly connected_at: string;
            /**
             * Server
             * @description The alias of the agent's MCP server.
             * @example mail
             */
            readonly server: string;
            /**
             * Title
             * @description The name of the service.
             * @example Example Mail
             */
            readonly title: string;
        };
        /**
         * ConversationFeedbackOut
         * @description A conversation that got feedback in the period. `title` is null in a report of the whole project.
         */
        readonly ConversationFeedbackOut: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /**
             * Last Judged At
             * @description When feedback was last given, in ISO 8601 and UTC.
             */
            readonly last_judged_at: string;
            /** @description Feedback from machines. */
            readonly machine: components["schemas"]["CountsOut"];
            /**
             * Machine Confidence
             * @description The mean confidence of machine feedback, from 0 to 1.
             */
            readonly machine_confidence?: number;
            /**
             * Satisfaction
             * @description The share of good ratings among all ratings by people; absent without any.
             */
            readonly satisfaction?: number;
            /**
             * Title
             * @description The title of the conversation; null in a report of the whole project.
             */
            readonly title?: string;
            /**
             * Turns
             * @description How many turns were counted.
             */
            readonly turns: number;
            /** @description Feedback from people. */
            readonly user: components["schemas"]["CountsOut"];
            /**
             * User Id
             * @description The user's id.
             */
            readonly user_id: string;
        };
        /**
         * ConversationIn
         * @description A new conversation.
         */
        readonly ConversationIn: {
            /**
             * Bundle Id
             * @description A bundle that `GET /bundles` lists, or `default` for the default one; any other is a 422 of type `urn:everturn:problem:unknown-bundle`. Messages that name none use the one with which their conversation was created, otherwise the default one.
             */
            readonly bundle_id?: string | null;
            /**
             * Title
             * @description The title; without one, it is made from the first message.
             * @default
             * @example Sales by region
             */
            readonly title?: string;
        };
        /**
         * ConversationList
         * @description One page, most recently active first; `next_cursor` leads to the next page and is null at the end.
         */
        readonly ConversationList: {
            /**
             * Items
             * @description The results, in order.
             */
            readonly items: readonly components["schemas"]["ConversationView"][];
            /**
             * Next Cursor
             * @description The `cursor` of the next page; absent at the end.
             */
            readonly next_cursor?: string;
        };
        /**
         * ConversationOut
         * @description A conversation. While its turn `turn_id` waits, `position` is the number of turns ahead of it, 0 if it is
         *     next; with `position_more` there are more than that.
         */
        readonly ConversationOut: {
            /**
             * Archived
             * @description Whether the conversation is archived.
             */
            readonly archived: boolean;
            /**
             * Bundle Id
             * @description The agent that answers; without it, the server's default.
             */
            readonly bundle_id?: string;
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /**
             * Created At
             * @description When it was created, in ISO 8601 (UTC).
             */
            readonly created_at: string;
            /**
             * Last Activity At
             * @description When something last happened in it, in ISO 8601 and UTC.
             */
            readonly last_activity_at: string;
            /**
             * Position
             * @description How many turns are ahead of the queued turn, 0 if it is next; absent unless one is queued.
             */
            readonly position?: number;
            /**
             * Position More
             * @description Whether more than `position` turns are ahead.
             */
            readonly position_more?: boolean;
            /**
             * State
             * @description `idle`, `queued` for a worker, `running`, `waiting` for an approval, or `error` if the last turn failed.
             * @enum {string}
             */
            readonly state: "idle" | "queued" | "running" | "waiting" | "error" | "unknown";
            /**
             * Title
             * @description The title of the conversation; empty until it has one.
             */
            readonly title: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id?: string;
        };
        /**
         * ConversationPatch
         * @description The changes; absent fields stay as they are.
         */
        readonly ConversationPatch: {
            /**
             * Archived
             * @description Whether the conversation is archived.
             * @example true
             */
            readonly archived?: boolean | null;
            /**
             * Title
             * @description The new title.
             * @example Sales by region
             */
            readonly title?: string | null;
        };
        /**
         * ConversationView
         * @description A conversation as clients see it. Times are ISO 8601 in UTC.
         */
        readonly ConversationView: {
            /**
             * Archived
             * @description Whether the conversation is archived.
             */
            readonly archived: boolean;
            /**
             * Bundle Id
             * @description The agent that answers; without it, the server's default.
             */
            readonly bundle_id?: string;
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /**
             * Created At
             * @description When it was created, in ISO 8601 (UTC).
             */
            readonly created_at: string;
            /**
             * Last Activity At
             * @description When something last happened in it, in ISO 8601 and UTC.
             */
            readonly last_activity_at: string;
            /**
             * State
             * @description `idle`, `queued` for a worker, `running`, `waiting` for an approval, or `error` if the last turn failed.
             * @enum {string}
             */
            readonly state: "idle" | "queued" | "running" | "waiting" | "error" | "unknown";
            /**
             * Title
             * @description The title of the conversation; empty until it has one.
             */
            readonly title: string;
        };
        /**
         * CountsOut
         * @description The number of feedback entries by reaction.
         */
        readonly CountsOut: {
            /**
             * Neutral
             * @description How many have the reaction `neutral`.
             * @example 0
             */
            readonly neutral: number;
            /**
             * Not Ok
             * @description How many have the reaction `not_ok`.
             * @example 1
             */
            readonly not_ok: number;
            /**
             * Ok
             * @description How many have the reaction `ok`.
             * @example 3
             */
            readonly ok: number;
            /**
             * Unrated
             * @description How many have a text but no reaction.
             * @example 0
             */
            readonly unrated: number;
        };
        /**
         * DeletedOut
         * @description What was deleted.
         */
        readonly DeletedOut: {
            /**
             * Documents
             * @description How many documents were deleted.
             * @example 1
             */
            readonly documents: number;
        };
        /**
         * DerivedArtifacts
         * @description Documents built from rows for one response; they are not stored.
         */
        readonly DerivedArtifacts: {
            /** @description The conversation's timeline. */
            readonly "conv.timeline.v1": components["schemas"]["TimelineView"];
            /**
             * Turn.Log
             * @description The logs of the requested turns, one for each.
             */
            readonly "turn.log": readonly components["schemas"]["TurnLogView"][];
        };
        /**
         * DiffFileOut
         * @description A file that differs between two commits.
         */
        readonly DiffFileOut: {
            /**
             * Added Lines
             * @description How many lines were added; null for a binary file.
             * @example 3
             */
            readonly added_lines?: number;
            /**
             * Binary
             * @description Whether it is a binary file, or one of more than a mebibyte: its lines are not compared.
             * @example false
             */
            readonly binary: boolean;
            /**
             * Change
             * @description What happened to it. A renamed file can be modified too.
             * @example modified
             * @enum {string}
             */
            readonly change: "added" | "modified" | "deleted" | "renamed";
            /**
             * Old Path
             * @description The path it had before; null unless it was renamed.
             * @example null
             */
            readonly old_path?: string;
            /**
             * Path
             * @description Its path in the workspace, of a deleted file the one it had.
             * @example src/report.py
             */
            readonly path: string;
            /**
             * Removed Lines
             * @description How many lines were removed; null for a binary file.
             * @example 1
             */
            readonly removed_lines?: number;
        };
        /**
         * DiffOut
         * @description The differences between two commits.
         */
        readonly DiffOut: {
            /**
             * Diff
             * @description The differences of all files as one unified diff, in the form of `git diff`; at most 1 MiB.
             * @example diff --git a/src/report.py b/src/report.py
             */
            readonly diff: string;
            /**
             * Files
             * @description The files that differ, by path.
             */
            readonly files: readonly components["schemas"]["DiffFileOut"][];
            /**
             * From Commit
             * @description The older commit; null for the empty workspace before the first one.
             * @example null
             */
            readonly from_commit?: string;
            /**
             * To Commit
             * @description The newer commit.
             * @example 8b2f155f4d6ec5ace61571944949f85f4e1a3b9b
             */
            readonly to_commit: string;
        };
        /**
         * DisconnectedOut
         * @description How many connections were deleted.
         */
        readonly DisconnectedOut: {
            /**
             * Deleted
             * @description How many connections were deleted.
             * @example 1
             */
            readonly deleted: number;
        };
        /**
         * DocumentList
         * @description Documents of a collection.
         */
        readonly DocumentList: {
            /**
             * Documents
             * @description The documents: of a list by name, of an upload in the order of its files.
             */
            readonly documents: readonly components["schemas"]["DocumentOut"][];
        };
        /**
         * DocumentOut
         * @description A document of a collection.
         */
        readonly DocumentOut: {
            /**
             * Added At
             * @description When it was uploaded or replaced, in ISO 8601 and UTC.
             * @example 2026-03-01T12:00:00.000Z
             */
            readonly added_at: string;
            /**
             * Error
             * @description Why its text can't be read; null if it can.
             * @example null
             */
            readonly error?: string;
            /**
             * Id
             * @description The document's id.
             * @example art_01890a5d-ac96-774b-bcce-b302099a8057
             */
            readonly id: string;
            /**
             * Media Type
             * @description Its media type.
             * @example application/pdf
             */
            readonly media_type: string;
            /**
             * Name
             * @description The name of its file, by which agents cite it.
             * @example lease.pdf
             */
            readonly name: string;
            /**
             * Size
             * @description Its size in bytes.
             * @example 182044
             */
            readonly size: number;
            /**
             * State
             * @description Whether agents find it: `waiting` until it is indexed, `failed` if its text can't be read.
             * @example indexed
             * @enum {string}
             */
            readonly state: "waiting" | "indexed" | "failed";
        };
        /**
         * EmbedTicketIn
         * @description Which page will show the chat, and to whom.
         */
        readonly EmbedTicketIn: {
            /**
             * Origin
             * @description The origin of the page, which the operator allows.
             */
            readonly origin: string;
            /**
             * User
             * @description Who chats: a guest of this project, or the user of the credential.
             * @default guest
             * @enum {string}
             */
            readonly user?: "guest" | "caller";
            /**
             * Visitor
             * @description Your name for the guest, who then keeps the same conversations; null for a new guest.
             * @example customer-17
             */
            readonly visitor?: string | null;
        };
        /**
         * EmbedTicketOut
         * @description `url` is the path for the frame, which can be opened once until `expires_at` (UTC, RFC 3339).
         */
        readonly EmbedTicketOut: {
            /**
             * Expires At
             * @description When it expires, in ISO 8601 (UTC).
             */
            readonly expires_at: string;
            /**
             * Ticket
             * @description The ticket.
             */
            readonly ticket: string;
            /**
             * Url
             * @description The path of the page with the ticket, on this server.
             */
            readonly url: string;
        };
        /**
         * EntryOut
         * @description A file or a folder.
         */
        readonly EntryOut: {
            /**
             * Kind
             * @description What it is.
             * @example file
             * @enum {string}
             */
            readonly kind: "file" | "folder";
            /**
             * Name
             * @description Its name, without the folder it is in.
             * @example report.py
             */
            readonly name: string;
            /**
             * Size
             * @description The size of a file in bytes; null for a folder.
             * @example 1204
             */
            readonly size?: number;
        };
        /**
         * ErasedOut
         * @description What was erased: rows by table, and objects. `objects_left` is how many could not be deleted yet.
         */
        readonly ErasedOut: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /**
             * Objects
             * @description How many stored files were deleted.
             */
            readonly objects: number;
            /**
             * Objects Left
             * @description How many stored files could not be deleted yet; the server tries again.
             */
            readonly objects_left: number;
            /**
             * Rows
             * @description How many rows were deleted, by table.
             */
            readonly rows: {
                readonly [key: string]: number;
            };
        };
        /**
         * EventIn
         * @description What a signal of kind `event` carries besides its text; `kind` is one that this server accepts.
         *
         *     The agent must act on a reactive event; any other is only recorded. `payload` can have at most 16 KiB as JSON.
         *     `iteration_credit` is the number of rounds that a reactive event adds to the turn.
         */
        readonly EventIn: {
            /**
             * Iteration Credit
             * @description How many rounds the event adds to the turn.
             * @default 0
             */
            readonly iteration_credit?: number;
            /**
             * Kind
             * @description The kind of event, one of those that this server accepts.
             * @example form
             */
            readonly kind: string;
            /**
             * Payload
             * @description What the event carries besides its text.
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
             * @description Whether the agent must act on the event.
             * @default true
             */
            readonly reactive?: boolean;
        };
        /**
         * EventView
         * @description The kind of an external event, and whether the agent must act on it.
         */
        readonly EventView: {
            /**
             * Kind
             * @description The kind of event, as its sender named it.
             */
            readonly kind: string;
            /**
             * Reactive
             * @description Whether the agent must act on the event.
             */
            readonly reactive: boolean;
        };
        /**
         * FeedbackIn
         * @description Feedback on a turn. A user's replaces the previous one; null without a text removes it. A machine's is added.
         */
        readonly FeedbackIn: {
            /**
             * Confidence
             * @description How sure the machine is, from 0 to 1; only with origin `machine`.
             */
            readonly confidence?: number | null;
            /**
             * Origin
             * @description Whether the feedback came from a person or a machine.
             * @default user
             * @enum {string}
             */
            readonly origin?: "user" | "machine";
            /**
             * Reaction
             * @description The rating.
             * @example ok
             */
            readonly reaction: ("ok" | "not_ok" | "neutral") | null;
            /**
             * Text
             * @description What is written with the rating.
             * @default
             * @example Just what I needed.
             */
            readonly text?: string;
            /**
             * Ts
             * @description When it was given; defaults to now.
             */
            readonly ts?: string | null;
        };
        /**
         * FeedbackOut
         * @description The current feedback.
         */
        readonly FeedbackOut: {
            /**
             * Cleared
             * @description Whether the feedback was removed.
             */
            readonly cleared: boolean;
            /** @description The feedback as it is stored now. */
            readonly feedback: components["schemas"]["FeedbackView"];
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id: string;
        };
        /**
         * FeedbackView
         * @description Feedback on the turn.
         */
        readonly FeedbackView: {
            /**
             * Confidence
             * @description How sure the machine is, from 0 to 1; absent for feedback from people.
             */
            readonly confidence?: number;
            /**
             * Origin
             * @description Whether the feedback came from a person or a machine.
             * @enum {string}
             */
            readonly origin: "user" | "machine";
            /**
             * Reaction
             * @description The rating.
             * @enum {string}
             */
            readonly reaction?: "ok" | "not_ok" | "neutral";
            /**
             * Text
             * @description What was written with the rating.
             */
            readonly text: string;
            /**
             * Ts
             * @description When it happened, in ISO 8601 (UTC).
             */
            readonly ts: string;
        };
        /**
         * FetchIn
         * @description Selects turns: all, or those in `turn_ids`; with `cursor`, only older ones. Returns the newest `limit` of them,
         *     and at most 4 MiB of stored text unless a single turn is larger. To read on, send `next_cursor` as `cursor` with the
         *     same `turn_ids`.
         */
        readonly FetchIn: {
            /**
             * Conversation Id
             * @description The conversation's id.
             * @example conv_01890a5d-ac96-774b-bcce-b302099a8057
             */
            readonly conversation_id: string;
            /**
             * Cursor
             * @description The `next_cursor` of the previous page, for older turns.
             */
            readonly cursor?: string | null;
            /**
             * Limit
             * @description The maximum number of turns on a page.
             * @default 20
             */
            readonly limit?: number;
            /**
             * Materialize
             * @description Whether to return the timeline with its sources and the turn logs as well.
             * @default false
             */
            readonly materialize?: boolean;
            /**
             * Turn Ids
             * @description The turns' ids.
             */
            readonly turn_ids?: readonly string[] | null;
        };
        /**
         * FetchView
         * @description A conversation with its last turns; the documents only if they were requested.
         */
        readonly FetchView: {
            /** @description The timeline and the turn logs; absent unless they were requested. */
            readonly artifacts?: components["schemas"]["DerivedArtifacts"];
            /** @description The conversation itself. */
            readonly conversation: components["schemas"]["ConversationView"];
            /**
             * Cursor
             * @description The id of the last event that is included. Streams continue after it.
             */
            readonly cursor: string;
            /**
             * Next Cursor
             * @description The `cursor` of the next page; absent at the end.
             */
            readonly next_cursor?: string;
            /**
             * Turns
             * @description The last turns, oldest first.
             */
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
             * @description Extensions of the names of such files.
             * @example [
             *       ".png"
             *     ]
             */
            readonly extensions: readonly string[];
            /**
             * Family
             * @description Which size limit applies: that of images, documents or texts.
             * @enum {string}
             */
            readonly family: "image" | "document" | "text";
            /**
             * Max Bytes
             * @description The maximum size of one such file in bytes.
             * @example 5000000
             */
            readonly max_bytes: number;
            /**
             * Media Type
             * @description Its media type.
             * @example image/png
             */
            readonly media_type: string;
        };
        /**
         * FileView
         * @description A file that the client can download from `url` (a path on the ingress). `size` in bytes.
         */
        readonly FileView: {
            /**
             * Artifact Id
             * @description The file's id; `GET /files/{tenant}/{project}/{artifact_id}` has its bytes.
             */
            readonly artifact_id: string;
            /**
             * Filename
             * @description The name of the file.
             */
            readonly filename: string;
            /**
             * Mime
             * @description The MIME type of the file.
             */
            readonly mime: string;
            /**
             * Ref
             * @description Its ref on the timeline.
             */
            readonly ref: string;
            /**
             * Rn
             * @description The resource name of the file.
             */
            readonly rn: string;
            /**
             * Size
             * @description Its size in bytes.
             */
            readonly size: number;
            /**
             * Url
             * @description The path of its content on this server.
             */
            readonly url: string;
            /**
             * Verdict
             * @description The result of the antivirus scan.
             */
            readonly verdict: string;
            /**
             * Visibility
             * @description Whether the person sees the file, or only the agent.
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
             * @description How many memories were deleted.
             * @example 1
             */
            readonly forgotten: number;
        };
        /**
         * ForkIn
         * @description The last turn to copy (default: the last one that has ended), and the title (default: the original's).
         */
        readonly ForkIn: {
            /**
             * Title
             * @description The title of the copy; without it, the original's.
             * @example Another way
             */
            readonly title?: string | null;
            /**
             * Turn Id
             * @description The turn's id.
             * @example turn_01890a5d-ac96-774b-bcce-b302099a8057
             */
            readonly turn_id?: string | null;
        };
        /**
         * ForkOut
         * @description The new conversation and its origin: `turn_id` is the last turn of the original that was copied.
         */
        readonly ForkOut: {
            /**
             * Blocks
             * @description How many blocks were copied.
             */
            readonly blocks: number;
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /**
             * Forked From
             * @description The conversation that was copied.
             */
            readonly forked_from: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id: string;
            /**
             * Turns
             * @description How many turns were copied.
             */
            readonly turns: number;
        };
        /**
         * FoundFileOut
         * @description A file and the path of its content. `size` is in bytes, `url` is a path on this server.
         */
        readonly FoundFileOut: {
            /**
             * Artifact Id
             * @description The file's id; `GET /files/{tenant}/{project}/{artifact_id}` has its bytes.
             */
            readonly artifact_id: string;
            /**
             * Filename
             * @description The name of the file.
             */
            readonly filename: string;
            /**
             * Mime
             * @description The MIME type of the file.
             */
            readonly mime: string;
            /**
             * Size
             * @description Its size in bytes.
             */
            readonly size: number;
            /**
             * Url
             * @description The path of its content on this server.
             */
            readonly url: string;
        };
        /**
         * GuestOut
         * @description `token` is the guest's bearer token; anyone who has it can act as this guest. `expires_at` is UTC, RFC 3339.
         */
        readonly GuestOut: {
            /**
             * Expires At
             * @description When it expires, in ISO 8601 (UTC).
             */
            readonly expires_at: string;
            /**
             * Token
             * @description The bearer token.
             */
            readonly token: string;
            /**
             * User Id
             * @description The user's id.
             */
            readonly user_id: string;
        };
        /**
         * HealthOut
         * @description The process responds.
         */
        readonly HealthOut: {
            /**
             * Status
             * @description Always `ok`.
             */
            readonly status: string;
        };
        /**
         * HitOut
         * @description One hit: `ref` names the full text of the snippet, `title` is its conversation's current title. `score` only
         *     orders the hits of one search.
         */
        readonly HitOut: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /**
             * Ref
             * @description The ref of the text in which it was found.
             */
            readonly ref: string;
            /**
             * Score
             * @description Orders the hits of one search and has no other meaning.
             */
            readonly score: number;
            /**
             * Snippet
             * @description The part of the text that was found.
             */
            readonly snippet: string;
            /**
             * Target
             * @description The kind of text.
             * @enum {string}
             */
            readonly target: "user" | "assistant" | "summary" | "notes" | "attachment";
            /**
             * Title
             * @description The current title of its conversation.
             */
            readonly title: string;
            /**
             * Ts
             * @description When it happened, in ISO 8601 (UTC).
             */
            readonly ts: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id: string;
        };
        /**
         * IndexEntry
         * @description A text. `kind` is its block type, `hint` its first words.
         */
        readonly IndexEntry: {
            /**
             * Hint
             * @description The beginning of the text.
             */
            readonly hint: string;
            /**
             * Kind
             * @description The type of its block.
             */
            readonly kind: string;
            /**
             * Ref
             * @description Its ref on the timeline.
             */
            readonly ref: string;
        };
        /**
         * IndexedCall
         * @description A tool call. `result_ref` and `status` are null while it has no result, `call_ref` if the call is lost.
         */
        readonly IndexedCall: {
            /**
             * Call Ref
             * @description The reference of the tool call in the timeline.
             */
            readonly call_ref?: string;
            /**
             * Hint
             * @description The beginnings of its parameters and of its result.
             */
            readonly hint: string;
            /**
             * Result Ref
             * @description The reference of the result.
             */
            readonly result_ref?: string;
            /**
             * Status
             * @description How the call ended; null while it has no result.
             */
            readonly status?: string;
            /**
             * Tool Id
             * @description The tool that is called.
             */
            readonly tool_id: string;
        };
        /**
         * IndexedFile
         * @description A file. `source` is the tool or the block type that brought it, `size` in bytes.
         */
        readonly IndexedFile: {
            /**
             * Hint
             * @description The beginning of its description.
             */
            readonly hint: string;
            /**
             * Kind
             * @description Where the file belongs: to the attachments, the workspace or the outputs.
             */
            readonly kind: string;
            /**
             * Mime
             * @description The MIME type of the file.
             */
            readonly mime: string;
            /**
             * Ref
             * @description Its ref on the timeline.
             */
            readonly ref: string;
            /**
             * Size
             * @description Its size in bytes.
             */
            readonly size: number;
            /**
             * Source
             * @description The tool, or the type of the block, that brought the file.
             */
            readonly source: string;
            /**
             * Visibility
             * @description Whether the person sees the file, or only the agent.
             */
            readonly visibility: string;
        };
        /**
         * MemoryList
         * @description One page, most recently changed first; `next_cursor` leads to the next page and is null at the end.
         */
        readonly MemoryList: {
            /**
             * Items
             * @description The results, in order.
             */
            readonly items: readonly components["schemas"]["MemoryOut"][];
            /**
             * Next Cursor
             * @description The `cursor` of the next page; absent at the end.
             * @example null
             */
            readonly next_cursor?: string;
        };
        /**
         * MemoryOut
         * @description One memory. `confidence` and `salience` are from 0 to 1; times are ISO 8601 in UTC.
         */
        readonly MemoryOut: {
            /**
             * Confidence
             * @description How certain the memory is, from 0 to 1.
             * @example 0.8
             */
            readonly confidence: number;
            /**
             * Created At
             * @description When it was created, in ISO 8601 (UTC).
             * @example 2026-03-01T12:00:00.000Z
             */
            readonly created_at: string;
            /**
             * Labels
             * @description The memory's labels.
             * @example [
             *       "preference"
             *     ]
             */
            readonly labels: readonly string[];
            /**
             * Memory Id
             * @description The memory's id.
             * @example mem_0f1e2d3c4b5a69788796
             */
            readonly memory_id: string;
            /**
             * Pinned
             * @description Whether it is always shown to the model.
             * @example false
             */
            readonly pinned: boolean;
            /**
             * Salience
             * @description How important it is, from 0 to 1.
             * @example 0.5
             */
            readonly salience: number;
            /**
             * Text
             * @description What is remembered.
             * @example Prefers metric units.
             */
            readonly text: string;
            /**
             * Updated At
             * @description When it was last changed, in ISO 8601 and UTC.
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
             * @description The maximum size in bytes of one PDF, .docx, .pptx or .xlsx.
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
             * @description The maximum number of files in one message.
             * @example 20
             */
            readonly files: number;
            /**
             * Image Bytes
             * @description The maximum size in bytes of one JPEG, PNG, GIF or WebP.
             * @example 5000000
             */
            readonly image_bytes: number;
            /**
             * Image Pixels
             * @description The maximum number of pixels in one image: width times height.
             * @example 100000000
             */
            readonly image_pixels: number;
            /**
             * Json Bytes
             * @description The maximum size in bytes of a JSON body, including files in base64, or of the part `message` of a multipart body.
             * @example 8000000
             */
            readonly json_bytes: number;
            /**
             * Message Bytes
             * @description The maximum size of the whole request in bytes, with all files and headers of its parts.
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
             * @description The maximum size in bytes of one text file of any other kind.
             * @example 10000000
             */
            readonly text_bytes: number;
            /**
             * Text Chars
             * @description The maximum number of characters in the text.
             * @example 1000000
             */
            readonly text_chars: number;
            /**
             * Zeros In Text
             * @description Extensions of text that may contain zero bytes, as UTF-16 without a byte order mark does; an empty string stands for names without an extension. Other text must not contain zero bytes, unless it begins with the UTF-16 byte order mark.
             * @example [
             *       "",
             *       ".txt"
             *     ]
             */
            readonly zeros_in_text: readonly string[];
        };
        /**
         * OperationList
         * @description The operations of a bundle that the caller may call, by name.
         */
        readonly OperationList: {
            /**
             * Operations
             * @description The operations, by name.
             */
            readonly operations: readonly components["schemas"]["OperationOut"][];
        };
        /**
         * OperationOut
         * @description An operation of a bundle that the caller may call.
         */
        readonly OperationOut: {
            /**
             * Effect
             * @description What repeating a call would do: nothing, the same again, or something that can't be undone.
             * @example pure
             * @enum {string}
             */
            readonly effect: "pure" | "idempotent" | "irreversible";
            /**
             * Name
             * @description Its name in the path of a call.
             * @example list_tickets
             */
            readonly name: string;
            /**
             * Parameters
             * @description The JSON schema of its arguments.
             * @example {
             *       "properties": {},
             *       "type": "object"
             *     }
             */
            readonly parameters: {
                readonly [key: string]: unknown;
            };
            /**
             * Summary
             * @description What it does, in a sentence.
             * @example The open tickets of a person.
             */
            readonly summary: string;
            /**
             * Timeout S
             * @description Its time limit in seconds.
             * @example 30
             */
            readonly timeout_s: number;
        };
        /**
         * OperationResult
         * @description What an operation has returned.
         */
        readonly OperationResult: {
            /**
             * Result
             * @description The result, any JSON value of at most 1 MiB.
             * @example {
             *       "tickets": [
             *         "T-1"
             *       ]
             *     }
             */
            readonly result: unknown;
        };
        /**
         * PartOut
         * @description The state of a part.
         */
        readonly PartOut: {
            /**
             * Detail
             * @description What is wrong; empty if nothing is.
             */
            readonly detail: string;
            /**
             * Ok
             * @description Whether it responds.
             */
            readonly ok: boolean;
        };
        /**
         * PeriodIn
         * @description A period: `from` is included, `to` is not. `scope` is `own`, or for admins `project`, their default.
         */
        readonly PeriodIn: {
            /**
             * Cursor
             * @description The `next_cursor` of the previous page.
             */
            readonly cursor?: string | null;
            /**
             * From
             * Format: date-time
             * @description The beginning of the period, inclusive, in ISO 8601 with a time zone.
             * @example 2026-03-01T00:00:00Z
             */
            readonly from: string;
            /**
             * Limit
             * @description Maximum number of rows on a page.
             * @default 50
             */
            readonly limit?: number;
            /**
             * Scope
             * @description Whose conversations are counted.
             */
            readonly scope?: ("own" | "project") | null;
            /**
             * To
             * Format: date-time
             * @description The end of the period, exclusive, in ISO 8601 with a time zone.
             * @example 2026-04-01T00:00:00Z
             */
            readonly to: string;
        };
        /**
         * PeriodOut
         * @description One page, the latest feedback first; `next_cursor` leads to the next page and is null at the end.
         */
        readonly PeriodOut: {
            /**
             * Items
             * @description The results, in order.
             */
            readonly items: readonly components["schemas"]["ConversationFeedbackOut"][];
            /**
             * Next Cursor
             * @description The `cursor` of the next page; absent at the end.
             */
            readonly next_cursor?: string;
            /**
             * Scope
             * @description Whose conversations are counted.
             * @enum {string}
             */
            readonly scope: "own" | "project";
        };
        /**
         * PlanSnapshot
         * @description The state of one plan after one change. Times are ISO 8601 in UTC.
         */
        readonly PlanSnapshot: {
            /**
             * Closed Ts
             * @description When it was closed, in ISO 8601 and UTC.
             */
            readonly closed_ts?: string;
            /**
             * Current
             * @description Whether it is the one that is followed now: step marks in notes apply to it.
             */
            readonly current: boolean;
            /**
             * Last Turn Id
             * @description The turn that changed it last.
             */
            readonly last_turn_id: string;
            /**
             * Origin Turn Id
             * @description The turn that it comes from.
             */
            readonly origin_turn_id: string;
            /**
             * Plan Id
             * @description The id of the plan.
             */
            readonly plan_id: string;
            /**
             * Snapshot Ref
             * @description The reference of this state of the plan.
             */
            readonly snapshot_ref: string;
            /** @description Whether the plan is still followed, and if not, how it ended. */
            readonly status: components["schemas"]["PlanStatus"];
            /**
             * Steps
             * @description The steps, in order.
             */
            readonly steps: readonly components["schemas"]["PlanStep"][];
            /**
             * Superseded Ts
             * @description When another plan replaced it, in ISO 8601 and UTC.
             */
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
            /**
             * Label
             * @description What the step is about.
             */
            readonly label: string;
            /**
             * N
             * @description Its number, from 1.
             */
            readonly n: number;
            /** @description How far the step is. */
            readonly status: components["schemas"]["StepStatus"];
            /**
             * Step Id
             * @description The id by which calls name the step that they belong to; absent in a plan that the model keeps by itself.
             */
            readonly step_id?: string;
        };
        /**
         * Problem
         * @description `type` is stable and starts with `urn:everturn:problem:`; `status` is an HTTP status.
         */
        readonly Problem: {
            /**
             * Detail
             * @description What was wrong, in a sentence.
             */
            readonly detail: string;
            /**
             * Instance
             * @description What the problem is about.
             */
            readonly instance?: string;
            /**
             * Status
             * @description The HTTP status.
             */
            readonly status: number;
            /**
             * Title
             * @description What went wrong, in a few words.
             */
            readonly title: string;
            /**
             * Type
             * @description What went wrong, as a stable URN.
             */
            readonly type: string;
        };
        /**
         * ReadyOut
         * @description `degraded` serves everything that does not need the failing part; `unready` is sent with status 503.
         *
         *     `workers` lists at most 100, by id, and is null if the list can't be read. Messages are accepted even if there are
         *     no workers.
         */
        readonly ReadyOut: {
            /**
             * Parts
             * @description Each component that the server needs, by name.
             */
            readonly parts: {
                readonly [key: string]: components["schemas"]["PartOut"];
            };
            /**
             * Status
             * @description Whether this server can do all of its work, a part of it, or none.
             * @enum {string}
             */
            readonly status: "ready" | "degraded" | "unready";
            /**
             * Workers
             * @description The live workers.
             */
            readonly workers?: readonly components["schemas"]["WorkerOut"][];
        };
        /**
         * ReceiptOut
         * @description The state of the message: `queued` as a turn or for the next one, or a signal's state.
         *
         *     A new turn has its `position`: how many turns were ahead of it at that time; with `position_more`, more than that.
         *     `file_notices` has a sentence for each file that was changed before it was stored, for example by removing the
         *     video appended to a picture.
         */
        readonly ReceiptOut: {
            /**
             * File Notices
             * @description A sentence for each file that was changed before it was stored.
             */
            readonly file_notices?: readonly string[];
            /**
             * Position
             * @description How many turns are ahead of the queued turn, 0 if it is next; absent unless one is queued.
             */
            readonly position?: number;
            /**
             * Position More
             * @description Whether more than `position` turns are ahead.
             */
            readonly position_more?: boolean;
            /**
             * State
             * @description `queued` for a message that became a turn or waits for the next one; otherwise the state of its signal.
             * @enum {string}
             */
            readonly state: "accepted" | "queued" | "applied" | "promoted" | "expired" | "rejected" | "retracted" | "unknown";
        };
        /**
         * RoundContextOut
         * @description The request of one round; `tokens` are estimates. `next_cursor` leads to more parts and is null at the end.
         */
        readonly RoundContextOut: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /**
             * Max Output Tokens
             * @description How many tokens the model may write.
             */
            readonly max_output_tokens: number;
            /**
             * Model
             * @description The model that was called.
             */
            readonly model: string;
            /**
             * Next Cursor
             * @description The `cursor` of the next page; absent at the end.
             */
            readonly next_cursor?: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round: number;
            /**
             * Segments
             * @description The parts of the model's input, in order.
             */
            readonly segments: readonly components["schemas"]["SegmentOut"][];
            /**
             * Segments Total
             * @description Parts of the whole request.
             */
            readonly segments_total: number;
            /**
             * Sent At
             * @description When it was sent, in ISO 8601 and UTC.
             */
            readonly sent_at: string;
            /**
             * Tokens
             * @description The estimated number of tokens.
             */
            readonly tokens: number;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id: string;
        };
        /**
         * SearchIn
         * @description The query. `from` is included, `to` is not; without `targets` all kinds of texts are searched.
         */
        readonly SearchIn: {
            /**
             * Conversation Id
             * @description Only in this conversation.
             */
            readonly conversation_id?: string | null;
            /**
             * Cursor
             * @description The `next_cursor` of the previous page; valid for an hour.
             */
            readonly cursor?: string | null;
            /**
             * From
             * @description The beginning of the period, inclusive, in ISO 8601 with a time zone.
             */
            readonly from?: string | null;
            /**
             * Limit
             * @description Maximum number of hits on a page.
             * @default 10
             */
            readonly limit?: number;
            /**
             * Mode
             * @description With `lexical`, a hit contains at least one of the words; with `hybrid`, which also compares meanings, any text can be a hit.
             * @default hybrid
             * @enum {string}
             */
            readonly mode?: "hybrid" | "lexical";
            /**
             * Query
             * @description What to look for.
             * @example which region sold most
             */
            readonly query: string;
            /**
             * Targets
             * @description The kinds of texts to search; all if absent.
             */
            readonly targets?: readonly ("user" | "assistant" | "summary" | "notes" | "attachment")[] | null;
            /**
             * To
             * @description The end of the period, exclusive, in ISO 8601 with a time zone.
             */
            readonly to?: string | null;
        };
        /**
         * SearchOut
         * @description Hits, best first. `mode` is `lexical` where only words were compared, as requested or because the encoder did
         *     not respond within 3 s, for example while it loads.
         */
        readonly SearchOut: {
            /**
             * Items
             * @description The results, in order.
             */
            readonly items: readonly components["schemas"]["HitOut"][];
            /**
             * Mode
             * @description How texts were compared with the query: `hybrid` is by meaning and by words.
             * @enum {string}
             */
            readonly mode: "hybrid" | "lexical";
            /**
             * Next Cursor
             * @description The `cursor` of the next page; absent at the end.
             */
            readonly next_cursor?: string;
        };
        /**
         * SegmentOut
         * @description One part of the input.
         *
         *     `cache` says how the provider's cache can serve it: `read` if the previous round began with the same parts up to a
         *     cache point, `write` up to this request's last cache point, `none` after it, `unknown` in a turn's first round.
         *     `text` is null if it can't be rebuilt; `note` then says why.
         */
        readonly SegmentOut: {
            /**
             * Cache
             * @description How the provider's cache can serve the part.
             * @enum {string}
             */
            readonly cache: "read" | "write" | "none" | "unknown";
            /**
             * Cache Point
             * @description Whether the cached beginning of the input ends here.
             */
            readonly cache_point: boolean;
            /**
             * Call Id
             * @description The call that this is, or whose result it is; null for other parts.
             */
            readonly call_id?: string;
            /**
             * Chars
             * @description Its length in characters.
             */
            readonly chars: number;
            /**
             * Form
             * @description The form in which the blocks are shown: whole, shortened or summarized.
             */
            readonly form?: string;
            /**
             * Index
             * @description The position of the part in the input, from 0.
             */
            readonly index: number;
            /**
             * Note
             * @description What the reader should know about it.
             */
            readonly note?: string;
            /**
             * Origin
             * @description What the segment is: `tools` is a JSON list of declarations, `call` the arguments of a call.
             * @enum {string}
             */
            readonly origin: "tools" | "system" | "block" | "media" | "tail" | "call";
            /**
             * Ref
             * @description The ref of its block; null for parts that are not a block.
             */
            readonly ref?: string;
            /**
             * Role
             * @description The role of its message; null for tools, and if an older worker sent the request.
             * @enum {string}
             */
            readonly role?: "system" | "user" | "assistant" | "tool";
            /**
             * Sha256
             * @description The SHA-256 of its bytes, in hexadecimal.
             */
            readonly sha256: string;
            /**
             * Text
             * @description The text of the part; null if it can't be rebuilt.
             */
            readonly text?: string;
            /**
             * Tokens
             * @description The estimated number of tokens.
             */
            readonly tokens: number;
            /**
             * Tool
             * @description The name under which the called tool was declared; null for other parts.
             */
            readonly tool?: string;
        };
        /**
         * SignalOut
         * @description A signal with its receipt.
         */
        readonly SignalOut: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /** @description The signal. */
            readonly signal: components["schemas"]["SignalView"];
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id?: string;
        };
        /**
         * SignalPatch
         * @description A new text for a signal that has not been applied yet.
         */
        readonly SignalPatch: {
            /**
             * Text
             * @description The new text.
             */
            readonly text: string;
        };
        /**
         * SignalView
         * @description A signal with its receipt. An event that waits for the next turn is `queued`; `event` is set for events only.
         *
         *     `approval_id` is set for answers to an approval; their `text` is the reason.
         */
        readonly SignalView: {
            /**
             * Approval Id
             * @description The id of the approval.
             */
            readonly approval_id?: string;
            /**
             * Attachments
             * @description The attached files.
             */
            readonly attachments: readonly components["schemas"]["FileView"][];
            /** @description The external event. */
            readonly event?: components["schemas"]["EventView"];
            /**
             * Kind
             * @description What the signal does: adds a message, steers or cancels the turn, reports an event, or answers an approval.
             * @enum {string}
             */
            readonly kind: "followup" | "steer" | "cancel" | "event" | "approve" | "deny" | "unknown";
            /**
             * Promoted To
             * @description The turn that it became.
             */
            readonly promoted_to?: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round?: number;
            /**
             * Signal Id
             * @description The signal's id.
             */
            readonly signal_id: string;
            /**
             * State
             * @description How far the signal has been processed; `promoted` if it became a turn of its own.
             * @enum {string}
             */
            readonly state: "accepted" | "queued" | "applied" | "promoted" | "expired" | "rejected" | "retracted" | "unknown";
            /**
             * Text
             * @description What the person wrote, or the text of the event.
             */
            readonly text: string;
        };
        /**
         * SkillList
         * @description The skills of the project.
         */
        readonly SkillList: {
            /**
             * Skills
             * @description The skills, by name.
             */
            readonly skills: readonly components["schemas"]["SkillOut"][];
        };
        /**
         * SkillOut
         * @description A skill of the project.
         */
        readonly SkillOut: {
            /**
             * Added At
             * @description When it was uploaded or replaced, in ISO 8601 and UTC.
             * @example 2026-03-01T12:00:00.000Z
             */
            readonly added_at: string;
            /**
             * Description
             * @description What it does, and when agents use it.
             * @example Decides on refunds. Use it when a customer wants money back.
             */
            readonly description: string;
            /**
             * Files
             * @description How many files it has.
             * @example 3
             */
            readonly files: number;
            /**
             * Name
             * @description Its name, as in its SKILL.md.
             * @example refunds
             */
            readonly name: string;
            /**
             * Ref
             * @description The ref with which agents read it.
             * @example sk:project.refunds
             */
            readonly ref: string;
            /**
             * Sha256
             * @description The hash of the archive that `GET` returns, in hex.
             * @example 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
             */
            readonly sha256: string;
            /**
             * Size
             * @description The size of its files together in bytes.
             * @example 4096
             */
            readonly size: number;
        };
        /**
         * SourceView
         * @description One row of the source pool. `text` is the beginning of its text, which has `text_chars` characters.
         */
        readonly SourceView: {
            /**
             * Favicon Url
             * @description The address of the site's icon.
             */
            readonly favicon_url?: string;
            /**
             * Mime
             * @description The MIME type of the file.
             */
            readonly mime: string;
            /**
             * Objective Relevance
             * @description How well the source fits the question, from 0 to 1.
             */
            readonly objective_relevance?: number;
            /**
             * Published Time Iso
             * @description When the source was published.
             */
            readonly published_time_iso?: string;
            /**
             * Sid
             * @description The number that answers cite the source by.
             */
            readonly sid: number;
            /**
             * Source Type
             * @description What kind of source it is.
             * @enum {string}
             */
            readonly source_type: "web" | "file" | "attachment" | "manual";
            /**
             * Text
             * @description The beginning of its text.
             */
            readonly text: string;
            /**
             * Text Chars
             * @description The length of its text in characters.
             */
            readonly text_chars: number;
            /**
             * Title
             * @description The title of the page or file.
             */
            readonly title: string;
            /**
             * Url
             * @description The address of the page, or the ref of the file.
             */
            readonly url: string;
            /**
             * Used
             * @description Whether any answer or file of the conversation cites the source.
             */
            readonly used: boolean;
        };
        /**
         * StepDetail
         * @description One step with everything that the view of its turn shortens: the full program, parameters and result.
         *
         *     `result` is the text that the model received. `code_ref` and `result_ref` name the blocks of the timeline. `log` is
         *     the program's output, if that is more than its result shows.
         */
        readonly StepDetail: {
            /**
             * Call Id
             * @description The id of the tool call.
             */
            readonly call_id?: string;
            /**
             * Code
             * @description The beginning of the program that was run.
             */
            readonly code?: string;
            /**
             * Code Chars
             * @description The length of the whole program in characters.
             */
            readonly code_chars?: number;
            /**
             * Code Ref
             * @description The reference of the whole program.
             */
            readonly code_ref?: string;
            /**
             * Duration Ms
             * @description How long it took, in milliseconds.
             */
            readonly duration_ms?: number;
            /**
             * Error
             * @description What went wrong; absent when nothing did.
             */
            readonly error?: string;
            /** @description The end of what the program printed. */
            readonly log?: components["schemas"]["FileView"];
            /**
             * Params
             * @description The parameters of the call.
             */
            readonly params?: {
                readonly [key: string]: unknown;
            };
            /**
             * Receipt
             * @description The signed receipt of the program's run; absent without a key for receipts.
             */
            readonly receipt?: {
                readonly [key: string]: unknown;
            };
            /**
             * Result
             * @description The whole result of the call.
             */
            readonly result?: string;
            /**
             * Result Preview
             * @description The beginning of the result.
             */
            readonly result_preview?: string;
            /**
             * Result Ref
             * @description The reference of the result.
             */
            readonly result_ref?: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round: number;
            /**
             * Status
             * @description Whether the step still runs, has completed, or has failed.
             * @enum {string}
             */
            readonly status: "started" | "completed" | "error";
            /**
             * Step
             * @description The id of the step.
             */
            readonly step: string;
            /**
             * Step Id
             * @description The step of a plan that the call belongs to; absent outside of such steps.
             */
            readonly step_id?: string;
            /**
             * Title
             * @description What the step does, for display: the name of the program, or the id of the tool.
             */
            readonly title: string;
            /**
             * Tool Id
             * @description The tool that is called.
             */
            readonly tool_id?: string;
        };
        /**
         * StepRoundView
         * @description A round of a step of a plan. Steps have rounds side by side, which are committed in any order.
         */
        readonly StepRoundView: {
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round: number;
            /**
             * Sealed
             * @description Whether the texts of the round are committed.
             */
            readonly sealed: boolean;
            /**
             * Step Id
             * @description The step of the plan that the round belongs to.
             */
            readonly step_id: string;
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
            /**
             * Call Id
             * @description The id of the tool call.
             */
            readonly call_id?: string;
            /**
             * Code
             * @description The beginning of the program that was run.
             */
            readonly code?: string;
            /**
             * Code Chars
             * @description The length of the whole program in characters.
             */
            readonly code_chars?: number;
            /**
             * Duration Ms
             * @description How long it took, in milliseconds.
             */
            readonly duration_ms?: number;
            /**
             * Error
             * @description What went wrong; absent when nothing did.
             */
            readonly error?: string;
            /**
             * Params
             * @description The parameters of the call.
             */
            readonly params?: {
                readonly [key: string]: unknown;
            };
            /**
             * Result Preview
             * @description The beginning of the result.
             */
            readonly result_preview?: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round: number;
            /**
             * Status
             * @description Whether the step still runs, has completed, or has failed.
             * @enum {string}
             */
            readonly status: "started" | "completed" | "error";
            /**
             * Step
             * @description The id of the step.
             */
            readonly step: string;
            /**
             * Step Id
             * @description The step of a plan that the call belongs to; absent outside of such steps.
             */
            readonly step_id?: string;
            /**
             * Title
             * @description What the step does, for display: the name of the program, or the id of the tool.
             */
            readonly title: string;
            /**
             * Tool Id
             * @description The tool that is called.
             */
            readonly tool_id?: string;
        };
        /**
         * SummaryOut
         * @description `satisfaction` is ok / (ok + not_ok + neutral) of people's feedback; null without any.
         */
        readonly SummaryOut: {
            /**
             * Conversations
             * @description How many conversations were counted.
             */
            readonly conversations: number;
            /** @description Feedback from machines. */
            readonly machine: components["schemas"]["CountsOut"];
            /**
             * Machine Confidence
             * @description The mean confidence of machine feedback, from 0 to 1.
             */
            readonly machine_confidence?: number;
            /**
             * Satisfaction
             * @description The share of good ratings among all ratings by people; absent without any.
             */
            readonly satisfaction?: number;
            /**
             * Scope
             * @description Whose conversations are counted.
             * @enum {string}
             */
            readonly scope: "own" | "project";
            /**
             * Turns
             * @description How many turns were counted.
             */
            readonly turns: number;
            /** @description Feedback from people. */
            readonly user: components["schemas"]["CountsOut"];
        };
        /**
         * TextView
         * @description Streamed text. One per (round, channel, instance); `marker` says where the client shows it.
         */
        readonly TextView: {
            /**
             * Artifact
             * @description The file that the text is written into.
             */
            readonly artifact?: string;
            /**
             * Channel
             * @description What the text is: thinking, a note, a file that is written, or the answer.
             */
            readonly channel: string;
            /**
             * Format
             * @description The format of the text.
             * @enum {string}
             */
            readonly format: "markdown" | "text" | "html" | "json" | "code";
            /**
             * Instance
             * @description The number of the text among those of its channel and round.
             */
            readonly instance: number;
            /**
             * Marker
             * @description Where the client shows the text: with the thinking, in the conversation, on the canvas, or as the answer.
             */
            readonly marker: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round: number;
            /**
             * Text
             * @description The whole text so far.
             */
            readonly text: string;
        };
        /**
         * TicketOut
         * @description `ticket` opens the conversation's events as `?ticket=`, until `expires_at` (UTC, RFC 3339).
         */
        readonly TicketOut: {
            /**
             * Expires At
             * @description When it expires, in ISO 8601 (UTC).
             */
            readonly expires_at: string;
            /**
             * Ticket
             * @description The ticket; pass it as `ticket` in the address of the event stream.
             */
            readonly ticket: string;
        };
        /**
         * TimelineView
         * @description The blocks of the requested turns, and all sources of the conversation by `sid`.
         */
        readonly TimelineView: {
            /**
             * Blocks
             * @description Blocks of the timeline.
             */
            readonly blocks: readonly components["schemas"]["BlockView"][];
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /**
             * Conversation Started At
             * @description When the conversation began, in ISO 8601 and UTC.
             */
            readonly conversation_started_at: string;
            /**
             * Conversation Title
             * @description The conversation's title.
             */
            readonly conversation_title: string;
            /**
             * Last Activity At
             * @description When something last happened in it, in ISO 8601 and UTC.
             */
            readonly last_activity_at: string;
            /**
             * Sources Pool
             * @description All sources of the conversation.
             */
            readonly sources_pool: readonly components["schemas"]["SourceView"][];
            /**
             * Turn Ids
             * @description The turns' ids.
             */
            readonly turn_ids: readonly string[];
            /**
             * Version
             * @description The version of the format.
             * @constant
             */
            readonly version: 1;
        };
        /**
         * TreeOut
         * @description What is in a folder of the workspace.
         */
        readonly TreeOut: {
            /**
             * Commit
             * @description The commit that was read; null if no turn has changed files yet.
             * @example 8b2f155f4d6ec5ace61571944949f85f4e1a3b9b
             */
            readonly commit?: string;
            /**
             * Entries
             * @description Its files and folders, in the order of git; at most 2,000.
             */
            readonly entries: readonly components["schemas"]["EntryOut"][];
            /**
             * Folder
             * @description The path of the folder; empty for the whole workspace.
             * @example src
             */
            readonly folder: string;
            /**
             * More Entries
             * @description How many more entries the folder has.
             * @example 0
             */
            readonly more_entries: number;
        };
        /**
         * TurnIndexView
         * @description One turn. Times are ISO 8601 in UTC; `outcome` is null while it runs. `more` says whether blocks are left out.
         */
        readonly TurnIndexView: {
            /**
             * Artifacts
             * @description The files of the turn.
             */
            readonly artifacts: readonly components["schemas"]["IndexedFile"][];
            /**
             * Ended At
             * @description When it ended, in ISO 8601 and UTC.
             */
            readonly ended_at?: string;
            /**
             * Events
             * @description External events, as the turn saw them.
             */
            readonly events: readonly components["schemas"]["IndexEntry"][];
            /**
             * Messages
             * @description The messages of the turn.
             */
            readonly messages: readonly components["schemas"]["IndexEntry"][];
            /**
             * More
             * @description Whether there is more than is listed.
             */
            readonly more: boolean;
            /**
             * Notes
             * @description Notes that the agent made.
             */
            readonly notes: readonly components["schemas"]["IndexEntry"][];
            /**
             * Outcome
             * @description How the turn ended, `failed` included; null while it is open.
             */
            readonly outcome?: string;
            /**
             * Ref
             * @description Its ref on the timeline.
             */
            readonly ref: string;
            /**
             * Sources
             * @description Refs of the sources that its answers cite.
             */
            readonly sources: readonly string[];
            /**
             * Started At
             * @description When it started, in ISO 8601 and UTC.
             */
            readonly started_at?: string;
            /**
             * Summaries
             * @description Summaries of older parts.
             */
            readonly summaries: readonly components["schemas"]["IndexEntry"][];
            /**
             * Tools
             * @description The tool calls of the turn.
             */
            readonly tools: readonly components["schemas"]["IndexedCall"][];
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id: string;
        };
        /**
         * TurnLogView
         * @description The log of one turn: its blocks by `seq`, the sources its answers cite, and its tokens, input and output.
         */
        readonly TurnLogView: {
            /**
             * Blocks Count
             * @description How many blocks the turn has.
             */
            readonly blocks_count: number;
            /**
             * End Ts
             * @description When it ended, in ISO 8601 and UTC.
             */
            readonly end_ts?: string;
            /**
             * First Seq
             * @description The number of its first block.
             */
            readonly first_seq?: number;
            /**
             * Last Seq
             * @description The number of its last block.
             */
            readonly last_seq?: number;
            /**
             * Sources Used
             * @description The numbers of the sources that its answers cite.
             */
            readonly sources_used: readonly number[];
            /**
             * Tokens
             * @description Input and output tokens of its model calls; 0 until it has ended.
             */
            readonly tokens: number;
            /**
             * Ts
             * @description When it happened, in ISO 8601 (UTC).
             */
            readonly ts: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id: string;
        };
        /**
         * TurnOut
         * @description A turn. While it waits, it has its `position` as a conversation has.
         */
        readonly TurnOut: {
            /**
             * Answer
             * @description The answer as the client shows it, in Markdown.
             */
            readonly answer?: string;
            /**
             * Approvals
             * @description Approvals of tool calls, oldest first.
             */
            readonly approvals: readonly components["schemas"]["ApprovalView"][];
            /**
             * Attachments
             * @description The attached files.
             */
            readonly attachments: readonly components["schemas"]["FileView"][];
            /**
             * Citations
             * @description The sources that the answer cites, by number.
             */
            readonly citations: readonly components["schemas"]["CitationView"][];
            /**
             * Created At
             * @description When it was created, in ISO 8601 (UTC).
             */
            readonly created_at: string;
            /**
             * Cut Reason
             * @description Why the answer stops before its end; absent when it does not.
             * @enum {string}
             */
            readonly cut_reason?: "length" | "content_filter" | "refusal" | "size_limit" | "time_limit" | "incomplete" | "provider_error" | "server_error";
            /**
             * Elapsed Ms
             * @description From the start of the turn to its end, in milliseconds.
             */
            readonly elapsed_ms?: number;
            /** @description What went wrong; absent when nothing did. */
            readonly error?: components["schemas"]["Problem"];
            /**
             * Feedback
             * @description Feedback on the turn.
             */
            readonly feedback: readonly components["schemas"]["FeedbackView"][];
            /**
             * Files
             * @description The files that the agent made.
             */
            readonly files: readonly components["schemas"]["FileView"][];
            /**
             * Followups
             * @description Questions that the person may ask next.
             */
            readonly followups: readonly string[];
            /**
             * Ordinal
             * @description The number of the turn in its conversation, from 1.
             */
            readonly ordinal: number;
            /**
             * Outcome
             * @description How the turn ended; absent while it is open or when it failed.
             * @enum {string}
             */
            readonly outcome?: "completed" | "stopped" | "cancelled" | "capped" | "cut" | "unknown";
            /**
             * Plans
             * @description The plans of the turn.
             */
            readonly plans: readonly components["schemas"]["PlanSnapshot"][];
            /**
             * Position
             * @description How many turns are ahead of the queued turn, 0 if it is next; absent unless one is queued.
             */
            readonly position?: number;
            /**
             * Position More
             * @description Whether more than `position` turns are ahead.
             */
            readonly position_more?: boolean;
            /**
             * Rounds
             * @description How many rounds the turn had.
             */
            readonly rounds: number;
            /**
             * Sealed Round
             * @description The last round whose texts are committed, and those of all rounds before it.
             */
            readonly sealed_round: number;
            /**
             * Signals
             * @description Signals that were sent to the turn, with their states.
             */
            readonly signals: readonly components["schemas"]["SignalView"][];
            /**
             * Sources Used
             * @description The numbers of the sources that were used.
             */
            readonly sources_used: readonly number[];
            /**
             * Status
             * @description Whether the turn waits for a worker, runs, waits for an approval, or has ended, and how.
             * @enum {string}
             */
            readonly status: "queued" | "running" | "waiting" | "completed" | "failed" | "cancelled" | "unknown";
            /**
             * Step Rounds
             * @description The rounds of steps of a plan that have begun, in the order of their numbers.
             */
            readonly step_rounds: readonly components["schemas"]["StepRoundView"][];
            /**
             * Steps
             * @description The steps, in order.
             */
            readonly steps: readonly components["schemas"]["StepView"][];
            /**
             * Text
             * @description What the person wrote.
             */
            readonly text: string;
            /**
             * Texts
             * @description What the agent wrote, in order.
             */
            readonly texts: readonly components["schemas"]["TextView"][];
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id: string;
            /** @description Tokens and cost of the model calls. */
            readonly usage?: components["schemas"]["TurnUsage"];
        };
        /**
         * TurnUsage
         * @description Sums over a turn's model calls. Cost in US dollars.
         *
         *     `cost_known` is false when one of the calls has no price; `cost_usd` is then the sum of the others.
         */
        readonly TurnUsage: {
            /**
             * Cache Read Tokens
             * @description Tokens of the input that came from the provider's cache.
             */
            readonly cache_read_tokens: number;
            /**
             * Cost Known
             * @description Whether the prices of all calls are known. Otherwise `cost_usd` is too low.
             */
            readonly cost_known: boolean;
            /**
             * Cost Usd
             * @description What the model calls cost, in US dollars.
             */
            readonly cost_usd: number;
            /**
             * Input Tokens
             * @description Tokens that the model read.
             */
            readonly input_tokens: number;
            /**
             * Output Tokens
             * @description Tokens that the model wrote.
             */
            readonly output_tokens: number;
        };
        /**
         * TurnView
         * @description One turn. `sealed_round` is the last round whose texts are committed; `answer` is the latest completion as shown.
         *
         *     `elapsed_ms` counts from the turn's start to its end. `cut_reason` says why the answer is incomplete; a followup
         *     continues it.
         */
        readonly TurnView: {
            /**
             * Answer
             * @description The answer as the client shows it, in Markdown.
             */
            readonly answer?: string;
            /**
             * Approvals
             * @description Approvals of tool calls, oldest first.
             */
            readonly approvals: readonly components["schemas"]["ApprovalView"][];
            /**
             * Attachments
             * @description The attached files.
             */
            readonly attachments: readonly components["schemas"]["FileView"][];
            /**
             * Citations
             * @description The sources that the answer cites, by number.
             */
            readonly citations: readonly components["schemas"]["CitationView"][];
            /**
             * Created At
             * @description When it was created, in ISO 8601 (UTC).
             */
            readonly created_at: string;
            /**
             * Cut Reason
             * @description Why the answer stops before its end; absent when it does not.
             * @enum {string}
             */
            readonly cut_reason?: "length" | "content_filter" | "refusal" | "size_limit" | "time_limit" | "incomplete" | "provider_error" | "server_error";
            /**
             * Elapsed Ms
             * @description From the start of the turn to its end, in milliseconds.
             */
            readonly elapsed_ms?: number;
            /** @description What went wrong; absent when nothing did. */
            readonly error?: components["schemas"]["Problem"];
            /**
             * Feedback
             * @description Feedback on the turn.
             */
            readonly feedback: readonly components["schemas"]["FeedbackView"][];
            /**
             * Files
             * @description The files that the agent made.
             */
            readonly files: readonly components["schemas"]["FileView"][];
            /**
             * Followups
             * @description Questions that the person may ask next.
             */
            readonly followups: readonly string[];
            /**
             * Ordinal
             * @description The number of the turn in its conversation, from 1.
             */
            readonly ordinal: number;
            /**
             * Outcome
             * @description How the turn ended; absent while it is open or when it failed.
             * @enum {string}
             */
            readonly outcome?: "completed" | "stopped" | "cancelled" | "capped" | "cut" | "unknown";
            /**
             * Plans
             * @description The plans of the turn.
             */
            readonly plans: readonly components["schemas"]["PlanSnapshot"][];
            /**
             * Rounds
             * @description How many rounds the turn had.
             */
            readonly rounds: number;
            /**
             * Sealed Round
             * @description The last round whose texts are committed, and those of all rounds before it.
             */
            readonly sealed_round: number;
            /**
             * Signals
             * @description Signals that were sent to the turn, with their states.
             */
            readonly signals: readonly components["schemas"]["SignalView"][];
            /**
             * Sources Used
             * @description The numbers of the sources that were used.
             */
            readonly sources_used: readonly number[];
            /**
             * Status
             * @description Whether the turn waits for a worker, runs, waits for an approval, or has ended, and how.
             * @enum {string}
             */
            readonly status: "queued" | "running" | "waiting" | "completed" | "failed" | "cancelled" | "unknown";
            /**
             * Step Rounds
             * @description The rounds of steps of a plan that have begun, in the order of their numbers.
             */
            readonly step_rounds: readonly components["schemas"]["StepRoundView"][];
            /**
             * Steps
             * @description The steps, in order.
             */
            readonly steps: readonly components["schemas"]["StepView"][];
            /**
             * Text
             * @description What the person wrote.
             */
            readonly text: string;
            /**
             * Texts
             * @description What the agent wrote, in order.
             */
            readonly texts: readonly components["schemas"]["TextView"][];
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id: string;
            /** @description Tokens and cost of the model calls. */
            readonly usage?: components["schemas"]["TurnUsage"];
        };
        /**
         * TurnsIn
         * @description Selects turns with feedback: all, or those in `turn_ids`; with `cursor`, only older ones. Returns the newest
         *     hundred of them, and at most 4 MiB of stored text unless a single turn is larger.
         */
        readonly TurnsIn: {
            /**
             * Cursor
             * @description The `next_cursor` of the previous page, for older turns.
             */
            readonly cursor?: string | null;
            /**
             * Turn Ids
             * @description The turns' ids.
             */
            readonly turn_ids?: readonly string[] | null;
        };
        /**
         * TurnsOut
         * @description Turns with feedback, oldest first. `next_cursor` leads to older turns; it is absent on the last page.
         */
        readonly TurnsOut: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /**
             * Next Cursor
             * @description The `cursor` of the next page; absent at the end.
             */
            readonly next_cursor?: string;
            /**
             * Turns
             * @description The turns with feedback, oldest first.
             */
            readonly turns: readonly components["schemas"]["TurnView"][];
        };
        /**
         * WidgetAddressOut
         * @description Where the page of a widget is, for a frame with `sandbox="allow-scripts"`.
         */
        readonly WidgetAddressOut: {
            /**
             * Expires At
             * @description Until when its files can be read (UTC, RFC 3339).
             */
            readonly expires_at: string;
            /**
             * Url
             * @description The path of its page on this server; it needs no credential.
             */
            readonly url: string;
        };
        /**
         * WidgetOut
         * @description A page of a bundle's author, to be shown beside the bundle's conversations.
         */
        readonly WidgetOut: {
            /**
             * Name
             * @description Its name in `GET /bundles/{tenant}/{project}/{bundle_id}/widgets/{name}`.
             * @example board
             */
            readonly name: string;
            /**
             * Title
             * @description The name that people see.
             * @example Open tickets
             */
            readonly title: string;
        };
        /**
         * WorkerOut
         * @description One worker; `sandbox` is the launcher of its programs, empty if it runs none.
         */
        readonly WorkerOut: {
            /**
             * Battery
             * @description The result of the escape battery on the sandbox.
             */
            readonly battery: components["schemas"]["BatteryOut"] | "not run";
            /**
             * Id
             * @description The worker's id.
             */
            readonly id: string;
            /**
             * Sandbox
             * @description How the worker runs programs; empty where it runs none.
             */
            readonly sandbox: string;
            /**
             * Slots
             * @description Its ordinary slots. It runs up to twice as many turns, because it has as many extra ones.
             */
            readonly slots: number;
        };
        /**
         * Problem
         * @description RFC 9457 problem details. `type` is stable.
         */
        readonly ProblemDetails: {
            /** @description What was wrong, in a sentence. */
            readonly detail: string;
            /** @description The fields that are wrong, with a message for each. */
            readonly errors?: readonly {
                readonly field: string;
                readonly message: string;
            }[];
            /** @description What the problem is about. */
            readonly instance?: string;
            /** @description The HTTP status. */
            readonly status: number;
            /** @description What went wrong, in a few words. */
            readonly title: string;
            /**
             * Format: uri
             * @description What went wrong, as a stable URN.
             */
            readonly type: string;
        };
        /**
         * ChatApproval
         * @description A call needs a person's approval, or the approval was settled. `state` changes once, from `pending`.
         */
        readonly ChatApproval: {
            /**
             * Approval Id
             * @description The id of the approval.
             */
            readonly approval_id: string;
            /**
             * Call Id
             * @description The id of the tool call.
             */
            readonly call_id: string;
            /**
             * Connect Url
             * @description The address at which the person connects an account, instead of approving the call.
             */
            readonly connect_url?: string;
            /**
             * Cut
             * @description Whether `params` are incomplete because they are too long.
             */
            readonly cut: boolean;
            /**
             * Details
             * @description What the call would do, as lines of plain text; absent if its tool does not describe its calls.
             */
            readonly details?: string;
            /**
             * Expires At
             * @description When it expires, in ISO 8601 (UTC).
             */
            readonly expires_at: string;
            /**
             * Explanation
             * @description Why the call needs approval.
             */
            readonly explanation: string;
            /**
             * Params
             * @description The parameters of the call.
             */
            readonly params: {
                readonly [key: string]: unknown;
            };
            /**
             * Reason
             * @description What the person gave as the reason; empty without one.
             */
            readonly reason: string;
            /**
             * State
             * @description What the person decided: `pending` until then; `withdrawn` if the answer is no longer needed.
             * @enum {string}
             */
            readonly state: "pending" | "approved" | "denied" | "expired" | "withdrawn";
            /**
             * Step Id
             * @description The step of a plan that the call belongs to; absent outside of such steps.
             */
            readonly step_id?: string;
            /**
             * Tool Id
             * @description The tool that is called.
             */
            readonly tool_id: string;
        };
        /**
         * ChatApprovalEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatApprovalEvent: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /** @description The event's own fields, by its type. */
            readonly data: components["schemas"]["ChatApproval"];
            /**
             * Id
             * @description The event's id, to continue after it; absent for what is not kept.
             */
            readonly id?: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round?: number;
            /**
             * Ts
             * @description When it happened, in ISO 8601 (UTC).
             */
            readonly ts: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id?: string;
            /**
             * @description The type of the event.
             * @constant
             */
            readonly type: "chat.approval";
        };
        /**
         * ChatCitations
         * @description Sources that the answer cites, without images.
         */
        readonly ChatCitations: {
            /**
             * Sources
             * @description The sources, by number.
             */
            readonly sources: readonly components["schemas"]["CitationView"][];
        };
        /**
         * ChatCitationsEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatCitationsEvent: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /** @description The event's own fields, by its type. */
            readonly data: components["schemas"]["ChatCitations"];
            /**
             * Id
             * @description The event's id, to continue after it; absent for what is not kept.
             */
            readonly id?: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round?: number;
            /**
             * Ts
             * @description When it happened, in ISO 8601 (UTC).
             */
            readonly ts: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id?: string;
            /**
             * @description The type of the event.
             * @constant
             */
            readonly type: "chat.citations";
        };
        /**
         * ChatCompaction
         * @description Older blocks are summarized so that the model's request fits. Token counts are estimates of the whole request.
         *
         *     `started` is followed by exactly one `completed` or `skipped`. `reason` is a token for why it began or was skipped.
         */
        readonly ChatCompaction: {
            /**
             * After Tokens
             * @description Tokens of the model's input afterwards.
             */
            readonly after_tokens?: number;
            /**
             * Before Tokens
             * @description Tokens of the model's input before.
             */
            readonly before_tokens: number;
            /**
             * Kept Messages
             * @description How many it sees afterwards, including the summary; set when it has completed.
             */
            readonly kept_messages?: number;
            /**
             * Original Messages
             * @description How many entries of the conversation the model saw before; set when it has completed.
             */
            readonly original_messages?: number;
            /**
             * Reason
             * @description A token for why it began or was skipped, such as `soft` or `nothing_to_save`.
             */
            readonly reason: string;
            /**
             * Status
             * @description Whether summarizing has begun, has made the request smaller, or was given up.
             * @enum {string}
             */
            readonly status: "started" | "completed" | "skipped";
        };
        /**
         * ChatCompactionEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatCompactionEvent: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /** @description The event's own fields, by its type. */
            readonly data: components["schemas"]["ChatCompaction"];
            /**
             * Id
             * @description The event's id, to continue after it; absent for what is not kept.
             */
            readonly id?: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round?: number;
            /**
             * Ts
             * @description When it happened, in ISO 8601 (UTC).
             */
            readonly ts: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id?: string;
            /**
             * @description The type of the event.
             * @constant
             */
            readonly type: "chat.compaction";
        };
        /**
         * ChatComplete
         * @description The turn ended without an error. `cut_reason` is set when the answer is incomplete.
         *
         *     It is always set with the outcome `cut`, and with `capped` when the closing answer is incomplete too.
         */
        readonly ChatComplete: {
            /**
             * Answer
             * @description The answer as the client shows it, in Markdown.
             */
            readonly answer?: string;
            /**
             * Cut Reason
             * @description Why the answer stops before its end; absent when it does not.
             * @enum {string}
             */
            readonly cut_reason?: "length" | "content_filter" | "refusal" | "size_limit" | "time_limit" | "incomplete" | "provider_error" | "server_error";
            /**
             * Elapsed Ms
             * @description From the start of the turn to its end, in milliseconds.
             */
            readonly elapsed_ms: number;
            /**
             * Followups
             * @description Questions that the person may ask next.
             */
            readonly followups: readonly string[];
            /**
             * Outcome
             * @description How the turn ended.
             * @enum {string}
             */
            readonly outcome: "completed" | "stopped" | "cancelled" | "capped" | "cut" | "unknown";
            /**
             * Rounds
             * @description How many rounds the turn had.
             */
            readonly rounds: number;
            /**
             * Sources Used
             * @description The numbers of the sources that were used.
             */
            readonly sources_used: readonly number[];
            /** @description Tokens and cost of the model calls. */
            readonly usage: components["schemas"]["TurnUsage"];
        };
        /**
         * ChatCompleteEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatCompleteEvent: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /** @description The event's own fields, by its type. */
            readonly data: components["schemas"]["ChatComplete"];
            /**
             * Id
             * @description The event's id, to continue after it; absent for what is not kept.
             */
            readonly id?: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round?: number;
            /**
             * Ts
             * @description When it happened, in ISO 8601 (UTC).
             */
            readonly ts: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id?: string;
            /**
             * @description The type of the event.
             * @constant
             */
            readonly type: "chat.complete";
        };
        /**
         * ChatDelta
         * @description More text of one channel instance. `index` counts the model's pieces of that instance from 0, and is that of the
         *     first if an event holds several; `completed` ends it.
         */
        readonly ChatDelta: {
            /**
             * Artifact
             * @description The file that the text is written into.
             */
            readonly artifact?: string;
            /**
             * Channel
             * @description What the text is: thinking, a note, a file that is written, or the answer.
             */
            readonly channel: string;
            /**
             * Completed
             * @description Whether the text is complete.
             */
            readonly completed: boolean;
            /**
             * Format
             * @description The format of the text.
             * @enum {string}
             */
            readonly format: "markdown" | "text" | "html" | "json" | "code";
            /**
             * Index
             * @description The position of this piece of text in its channel instance, from 0.
             */
            readonly index: number;
            /**
             * Instance
             * @description The number of the text among those of its channel and round.
             */
            readonly instance: number;
            /**
             * Marker
             * @description Where the client shows the text: with the thinking, in the conversation, on the canvas, or as the answer.
             */
            readonly marker: string;
            /**
             * Text
             * @description The next piece of the text.
             */
            readonly text: string;
        };
        /**
         * ChatDeltaEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatDeltaEvent: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /** @description The event's own fields, by its type. */
            readonly data: components["schemas"]["ChatDelta"];
            /**
             * Id
             * @description The event's id, to continue after it; absent for what is not kept.
             */
            readonly id?: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round?: number;
            /**
             * Ts
             * @description When it happened, in ISO 8601 (UTC).
             */
            readonly ts: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id?: string;
            /**
             * @description The type of the event.
             * @constant
             */
            readonly type: "chat.delta";
        };
        /**
         * ChatError
         * @description The turn failed; its work so far is kept. The counts are as in ChatComplete.
         */
        readonly ChatError: {
            /**
             * Elapsed Ms
             * @description From the start of the turn to its end, in milliseconds.
             */
            readonly elapsed_ms: number;
            /** @description What went wrong. */
            readonly problem: components["schemas"]["Problem"];
            /**
             * Rounds
             * @description How many rounds the turn had.
             */
            readonly rounds: number;
            /** @description Tokens and cost of the model calls. */
            readonly usage: components["schemas"]["TurnUsage"];
        };
        /**
         * ChatErrorEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatErrorEvent: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /** @description The event's own fields, by its type. */
            readonly data: components["schemas"]["ChatError"];
            /**
             * Id
             * @description The event's id, to continue after it; absent for what is not kept.
             */
            readonly id?: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round?: number;
            /**
             * Ts
             * @description When it happened, in ISO 8601 (UTC).
             */
            readonly ts: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id?: string;
            /**
             * @description The type of the event.
             * @constant
             */
            readonly type: "chat.error";
        };
        /**
         * ChatFiles
         * @description New files for the person.
         */
        readonly ChatFiles: {
            /**
             * Files
             * @description The files that the agent made.
             */
            readonly files: readonly components["schemas"]["FileView"][];
        };
        /**
         * ChatFilesEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatFilesEvent: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /** @description The event's own fields, by its type. */
            readonly data: components["schemas"]["ChatFiles"];
            /**
             * Id
             * @description The event's id, to continue after it; absent for what is not kept.
             */
            readonly id?: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round?: number;
            /**
             * Ts
             * @description When it happened, in ISO 8601 (UTC).
             */
            readonly ts: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id?: string;
            /**
             * @description The type of the event.
             * @constant
             */
            readonly type: "chat.files";
        };
        /**
         * ChatFollowups
         * @description Suggested follow-up messages.
         */
        readonly ChatFollowups: {
            /**
             * Items
             * @description Questions that the person may ask next.
             */
            readonly items: readonly string[];
        };
        /**
         * ChatFollowupsEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatFollowupsEvent: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /** @description The event's own fields, by its type. */
            readonly data: components["schemas"]["ChatFollowups"];
            /**
             * Id
             * @description The event's id, to continue after it; absent for what is not kept.
             */
            readonly id?: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round?: number;
            /**
             * Ts
             * @description When it happened, in ISO 8601 (UTC).
             */
            readonly ts: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id?: string;
            /**
             * @description The type of the event.
             * @constant
             */
            readonly type: "chat.followups";
        };
        /**
         * ChatPhase
         * @description What a turn does while nothing else can be shown. It applies until the turn's next event of another type.
         *
         *     `selecting_tools`: a model chooses which of `total_tools` the turn can use. `model_called`: a call of the model
         *     begins. `model_thought`: its thinking has ended, because the answer begins or the reply has ended; `thinking` is all
         *     of it. `model_waiting`: the model has been silent for `waited_ms`; repeated every few seconds. `model_retrying`: a
         *     call failed because of `reason` and is repeated in `retry_in_ms`; `attempt` of `max_attempts` is the next one.
         *     `model_fallback`: the fallback model is called instead. `model_replying`: the model writes something that is not
         *     shown yet. It is not stored, so a snapshot does not contain it.
         */
        readonly ChatPhase: {
            /**
             * Attempt
             * @description The number of this attempt, from 1.
             */
            readonly attempt?: number;
            /**
             * Max Attempts
             * @description The maximum number of attempts.
             */
            readonly max_attempts?: number;
            /**
             * Phase
             * @description What the turn does or waits for.
             * @enum {string}
             */
            readonly phase: "selecting_tools" | "model_called" | "model_thought" | "model_waiting" | "model_retrying" | "model_fallback" | "model_replying";
            /**
             * Reason
             * @description A token for why the call failed, such as `rate_limited`; absent while the model is only waited for.
             */
            readonly reason?: string;
            /**
             * Retry In Ms
             * @description When the next attempt begins, in milliseconds from now.
             */
            readonly retry_in_ms?: number;
            /**
             * Step Id
             * @description The step of a plan that the phase belongs to; absent outside of such steps.
             */
            readonly step_id?: string;
            /**
             * Thinking
             * @description All that the model thought in this call, at most 20,000 characters; empty if it did not think.
             */
            readonly thinking?: string;
            /**
             * Total Tools
             * @description How many tools there are to choose from.
             */
            readonly total_tools?: number;
            /**
             * Waited Ms
             * @description How long it has waited, in milliseconds.
             */
            readonly waited_ms?: number;
        };
        /**
         * ChatPhaseEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatPhaseEvent: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /** @description The event's own fields, by its type. */
            readonly data: components["schemas"]["ChatPhase"];
            /**
             * Id
             * @description The event's id, to continue after it; absent for what is not kept.
             */
            readonly id?: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round?: number;
            /**
             * Ts
             * @description When it happened, in ISO 8601 (UTC).
             */
            readonly ts: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id?: string;
            /**
             * @description The type of the event.
             * @constant
             */
            readonly type: "chat.phase";
        };
        /**
         * ChatPlan
         * @description A plan changed; the snapshot replaces the one with the same id.
         */
        readonly ChatPlan: {
            /** @description The plan as it is now. */
            readonly plan: components["schemas"]["PlanSnapshot"];
        };
        /**
         * ChatPlanEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatPlanEvent: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /** @description The event's own fields, by its type. */
            readonly data: components["schemas"]["ChatPlan"];
            /**
             * Id
             * @description The event's id, to continue after it; absent for what is not kept.
             */
            readonly id?: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round?: number;
            /**
             * Ts
             * @description When it happened, in ISO 8601 (UTC).
             */
            readonly ts: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id?: string;
            /**
             * @description The type of the event.
             * @constant
             */
            readonly type: "chat.plan";
        };
        /**
         * ChatRewind
         * @description The committed state of a turn. It replaces the client's copy, except for receipts that it does not include.
         */
        readonly ChatRewind: {
            /** @description The turn as it is now. */
            readonly turn: components["schemas"]["TurnView"];
        };
        /**
         * ChatRewindEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatRewindEvent: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /** @description The event's own fields, by its type. */
            readonly data: components["schemas"]["ChatRewind"];
            /**
             * Id
             * @description The event's id, to continue after it; absent for what is not kept.
             */
            readonly id?: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round?: number;
            /**
             * Ts
             * @description When it happened, in ISO 8601 (UTC).
             */
            readonly ts: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id?: string;
            /**
             * @description The type of the event.
             * @constant
             */
            readonly type: "chat.rewind";
        };
        /**
         * ChatSignal
         * @description The state of a signal changed.
         */
        readonly ChatSignal: {
            /**
             * Approval Id
             * @description The id of the approval.
             */
            readonly approval_id?: string;
            /**
             * Attachments
             * @description The attached files.
             */
            readonly attachments: readonly components["schemas"]["FileView"][];
            /** @description The external event. */
            readonly event?: components["schemas"]["EventView"];
            /**
             * Kind
             * @description What the signal does: adds a message, steers or cancels the turn, reports an event, or answers an approval.
             * @enum {string}
             */
            readonly kind: "followup" | "steer" | "cancel" | "event" | "approve" | "deny" | "unknown";
            /**
             * Promoted To
             * @description The turn that it became.
             */
            readonly promoted_to?: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round?: number;
            /**
             * Signal Id
             * @description The signal's id.
             */
            readonly signal_id: string;
            /**
             * State
             * @description How far the signal has been processed; `promoted` if it became a turn of its own.
             * @enum {string}
             */
            readonly state: "accepted" | "queued" | "applied" | "promoted" | "expired" | "rejected" | "retracted" | "unknown";
            /**
             * Text
             * @description What the person wrote, or the text of the event.
             */
            readonly text: string;
        };
        /**
         * ChatSignalEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatSignalEvent: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /** @description The event's own fields, by its type. */
            readonly data: components["schemas"]["ChatSignal"];
            /**
             * Id
             * @description The event's id, to continue after it; absent for what is not kept.
             */
            readonly id?: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round?: number;
            /**
             * Ts
             * @description When it happened, in ISO 8601 (UTC).
             */
            readonly ts: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id?: string;
            /**
             * @description The type of the event.
             * @constant
             */
            readonly type: "chat.signal";
        };
        /**
         * ChatStart
         * @description A turn started.
         */
        readonly ChatStart: {
            /**
             * Attachments
             * @description The attached files.
             */
            readonly attachments: readonly components["schemas"]["FileView"][];
            /**
             * Created At
             * @description When it was created, in ISO 8601 (UTC).
             */
            readonly created_at: string;
            /**
             * Ordinal
             * @description The number of the turn in its conversation, from 1.
             */
            readonly ordinal: number;
            /**
             * Text
             * @description What the person wrote.
             */
            readonly text: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id: string;
        };
        /**
         * ChatStartEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatStartEvent: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /** @description The event's own fields, by its type. */
            readonly data: components["schemas"]["ChatStart"];
            /**
             * Id
             * @description The event's id, to continue after it; absent for what is not kept.
             */
            readonly id?: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round?: number;
            /**
             * Ts
             * @description When it happened, in ISO 8601 (UTC).
             */
            readonly ts: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id?: string;
            /**
             * @description The type of the event.
             * @constant
             */
            readonly type: "chat.start";
        };
        /**
         * ChatStep
         * @description A step began or ended. `step` is its key in the turn. Only its first event has `code`, as in StepView.
         */
        readonly ChatStep: {
            /**
             * Call Id
             * @description The id of the tool call.
             */
            readonly call_id?: string;
            /**
             * Code
             * @description The beginning of the program that was run.
             */
            readonly code?: string;
            /**
             * Code Chars
             * @description The length of the whole program in characters.
             */
            readonly code_chars?: number;
            /**
             * Duration Ms
             * @description How long it took, in milliseconds.
             */
            readonly duration_ms?: number;
            /**
             * Error
             * @description What went wrong; absent when nothing did.
             */
            readonly error?: string;
            /**
             * Params
             * @description The parameters of the call.
             */
            readonly params?: {
                readonly [key: string]: unknown;
            };
            /**
             * Ref
             * @description Its ref on the timeline.
             */
            readonly ref?: string;
            /**
             * Result Preview
             * @description The beginning of the result.
             */
            readonly result_preview?: string;
            /**
             * Status
             * @description Whether the step still runs, has completed, or has failed.
             * @enum {string}
             */
            readonly status: "started" | "completed" | "error";
            /**
             * Step
             * @description The id of the step.
             */
            readonly step: string;
            /**
             * Step Id
             * @description The step of a plan that the call belongs to; absent outside of such steps.
             */
            readonly step_id?: string;
            /**
             * Title
             * @description What the step does, for display: the name of the program, or the id of the tool.
             */
            readonly title: string;
            /**
             * Tool Id
             * @description The tool that is called.
             */
            readonly tool_id?: string;
        };
        /**
         * ChatStepEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatStepEvent: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /** @description The event's own fields, by its type. */
            readonly data: components["schemas"]["ChatStep"];
            /**
             * Id
             * @description The event's id, to continue after it; absent for what is not kept.
             */
            readonly id?: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round?: number;
            /**
             * Ts
             * @description When it happened, in ISO 8601 (UTC).
             */
            readonly ts: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id?: string;
            /**
             * @description The type of the event.
             * @constant
             */
            readonly type: "chat.step";
        };
        /**
         * ChatTool
         * @description Progress of a running tool. It is not stored: clients that connect later see only the call's step.
         *
         *     `kind` is `progress` (`text` says what is happening now), `message` (`text` is for the person), or `data` (`data` is
         *     for a client that knows the tool).
         */
        readonly ChatTool: {
            /**
             * Call Id
             * @description The id of the tool call.
             */
            readonly call_id: string;
            /**
             * Data
             * @description Values for clients that know the tool; only with the kind `data`.
             */
            readonly data?: {
                readonly [key: string]: unknown;
            };
            /**
             * Kind
             * @description Whom the news is for: `progress` and `message` are for people, `data` is for clients that know the tool.
             * @enum {string}
             */
            readonly kind: "progress" | "message" | "data";
            /**
             * Text
             * @description What is happening now, or the message to the person.
             */
            readonly text: string;
            /**
             * Tool Id
             * @description The tool that is called.
             */
            readonly tool_id: string;
        };
        /**
         * ChatToolEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ChatToolEvent: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /** @description The event's own fields, by its type. */
            readonly data: components["schemas"]["ChatTool"];
            /**
             * Id
             * @description The event's id, to continue after it; absent for what is not kept.
             */
            readonly id?: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round?: number;
            /**
             * Ts
             * @description When it happened, in ISO 8601 (UTC).
             */
            readonly ts: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id?: string;
            /**
             * @description The type of the event.
             * @constant
             */
            readonly type: "chat.tool";
        };
        /**
         * ConvStatus
         * @description The conversation's state changed. `position` is the number of turns ahead of a queued one, 0 if it is next.
         *
         *     Sent again while the position changes, at most once a second; with `position_more` the real number is larger.
         */
        readonly ConvStatus: {
            /**
             * Position
             * @description How many turns are ahead of a queued turn, 0 if it is next.
             */
            readonly position?: number;
            /**
             * Position More
             * @description Whether more than `position` turns are ahead.
             */
            readonly position_more?: boolean;
            /**
             * State
             * @description What the conversation is doing: nothing, waiting for a worker, running a turn, or waiting for an approval;
             *     `error` if its last turn failed.
             * @enum {string}
             */
            readonly state: "idle" | "queued" | "running" | "waiting" | "error" | "unknown";
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id?: string;
        };
        /**
         * ConvStatusEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ConvStatusEvent: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /** @description The event's own fields, by its type. */
            readonly data: components["schemas"]["ConvStatus"];
            /**
             * Id
             * @description The event's id, to continue after it; absent for what is not kept.
             */
            readonly id?: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round?: number;
            /**
             * Ts
             * @description When it happened, in ISO 8601 (UTC).
             */
            readonly ts: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id?: string;
            /**
             * @description The type of the event.
             * @constant
             */
            readonly type: "conv.status";
        };
        /**
         * ConvTitle
         * @description The conversation's title was set.
         */
        readonly ConvTitle: {
            /**
             * Title
             * @description The new title.
             */
            readonly title: string;
        };
        /**
         * ConvTitleEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ConvTitleEvent: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /** @description The event's own fields, by its type. */
            readonly data: components["schemas"]["ConvTitle"];
            /**
             * Id
             * @description The event's id, to continue after it; absent for what is not kept.
             */
            readonly id?: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round?: number;
            /**
             * Ts
             * @description When it happened, in ISO 8601 (UTC).
             */
            readonly ts: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id?: string;
            /**
             * @description The type of the event.
             * @constant
             */
            readonly type: "conv.title";
        };
        readonly Event: components["schemas"]["ReadyEvent"] | components["schemas"]["ConvStatusEvent"] | components["schemas"]["ConvTitleEvent"] | components["schemas"]["ChatStartEvent"] | components["schemas"]["ChatStepEvent"] | components["schemas"]["ChatDeltaEvent"] | components["schemas"]["ChatPlanEvent"] | components["schemas"]["ChatFilesEvent"] | components["schemas"]["ChatCitationsEvent"] | components["schemas"]["ChatFollowupsEvent"] | components["schemas"]["ChatCompactionEvent"] | components["schemas"]["ChatPhaseEvent"] | components["schemas"]["ChatToolEvent"] | components["schemas"]["ChatSignalEvent"] | components["schemas"]["ChatApprovalEvent"] | components["schemas"]["ChatRewindEvent"] | components["schemas"]["ChatCompleteEvent"] | components["schemas"]["ChatErrorEvent"] | components["schemas"]["StreamSnapshotEvent"] | components["schemas"]["StreamGapEvent"] | components["schemas"]["ServerShutdownEvent"];
        /**
         * Ready
         * @description The stream is open; `cursor` is its first position.
         */
        readonly Ready: {
            /**
             * Cursor
             * @description The id of the last event that is included. Streams continue after it.
             */
            readonly cursor?: string;
        };
        /**
         * ReadyEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ReadyEvent: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /** @description The event's own fields, by its type. */
            readonly data: components["schemas"]["Ready"];
            /**
             * Id
             * @description The event's id, to continue after it; absent for what is not kept.
             */
            readonly id?: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round?: number;
            /**
             * Ts
             * @description When it happened, in ISO 8601 (UTC).
             */
            readonly ts: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id?: string;
            /**
             * @description The type of the event.
             * @constant
             */
            readonly type: "ready";
        };
        /**
         * ServerShutdown
         * @description This server is shutting down; reconnect after `retry_ms`.
         */
        readonly ServerShutdown: {
            /**
             * Retry Ms
             * @description How long to wait before connecting again, in milliseconds.
             */
            readonly retry_ms: number;
        };
        /**
         * ServerShutdownEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly ServerShutdownEvent: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /** @description The event's own fields, by its type. */
            readonly data: components["schemas"]["ServerShutdown"];
            /**
             * Id
             * @description The event's id, to continue after it; absent for what is not kept.
             */
            readonly id?: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round?: number;
            /**
             * Ts
             * @description When it happened, in ISO 8601 (UTC).
             */
            readonly ts: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id?: string;
            /**
             * @description The type of the event.
             * @constant
             */
            readonly type: "server.shutdown";
        };
        /**
         * StateView
         * @description A conversation with its last turns, oldest first; `cursor` is the event id the state includes.
         *
         *     `next_cursor` is the cursor of older turns, null or absent when there are none.
         */
        readonly StateView: {
            /** @description The conversation itself. */
            readonly conversation: components["schemas"]["ConversationView"];
            /**
             * Cursor
             * @description The id of the last event that is included. Streams continue after it.
             */
            readonly cursor: string;
            /**
             * Next Cursor
             * @description The `cursor` of the next page; absent at the end.
             */
            readonly next_cursor?: string;
            /**
             * Turns
             * @description The last turns, oldest first.
             */
            readonly turns: readonly components["schemas"]["TurnView"][];
        };
        /**
         * StreamGap
         * @description Events between `after` and `oldest` are no longer available; a snapshot follows.
         */
        readonly StreamGap: {
            /**
             * After
             * @description The event id that the client sent.
             */
            readonly after: string;
            /**
             * Oldest
             * @description The oldest event id that is still available.
             */
            readonly oldest?: string;
        };
        /**
         * StreamGapEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly StreamGapEvent: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /** @description The event's own fields, by its type. */
            readonly data: components["schemas"]["StreamGap"];
            /**
             * Id
             * @description The event's id, to continue after it; absent for what is not kept.
             */
            readonly id?: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round?: number;
            /**
             * Ts
             * @description When it happened, in ISO 8601 (UTC).
             */
            readonly ts: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id?: string;
            /**
             * @description The type of the event.
             * @constant
             */
            readonly type: "stream.gap";
        };
        /**
         * StreamSnapshot
         * @description The initial state. It replaces the client's state of the conversation.
         *
         *     It has the last 20 turns, but at most 1 MiB of stored text unless the newest turn alone is larger; `next_cursor` of
         *     the state leads to older turns over REST.
         */
        readonly StreamSnapshot: {
            /** @description The conversation with its last turns. */
            readonly state: components["schemas"]["StateView"];
        };
        /**
         * StreamSnapshotEvent
         * @description One event with its address. `id` is `<fence>-<n>`, absent on hints; `ts` is ISO 8601 in UTC.
         */
        readonly StreamSnapshotEvent: {
            /**
             * Conversation Id
             * @description The conversation's id.
             */
            readonly conversation_id: string;
            /** @description The event's own fields, by its type. */
            readonly data: components["schemas"]["StreamSnapshot"];
            /**
             * Id
             * @description The event's id, to continue after it; absent for what is not kept.
             */
            readonly id?: string;
            /**
             * Round
             * @description The round of the turn that it belongs to, from 1; 0 is before the first.
             */
            readonly round?: number;
            /**
             * Ts
             * @description When it happened, in ISO 8601 (UTC).
             */
            readonly ts: string;
            /**
             * Turn Id
             * @description The turn's id.
             */
            readonly turn_id?: string;
            /**
             * @description The type of the event.
             * @constant
             */
            readonly type: "stream.snapshot";
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type AcceptedOut = components['schemas']['AcceptedOut'];
export type ApprovalView = components['schemas']['ApprovalView'];
export type AttachmentIn = components['schemas']['AttachmentIn'];
export type BatteryOut = components['schemas']['BatteryOut'];
export type BlockView = components['schemas']['BlockView'];
export type BundleList = components['schemas']['BundleList'];
export type BundleOut = components['schemas']['BundleOut'];
export type ByRnIn = components['schemas']['ByRnIn'];
export type ChangedFileOut = components['schemas']['ChangedFileOut'];
export type CitationView = components['schemas']['CitationView'];
export type CollectionIn = components['schemas']['CollectionIn'];
export type CollectionList = components['schemas']['CollectionList'];
export type CollectionOut = components['schemas']['CollectionOut'];
export type CollectionPatch = components['schemas']['CollectionPatch'];
export type CommitList = components['schemas']['CommitList'];
export type CommitOut = components['schemas']['CommitOut'];
export type ConnectionList = components['schemas']['ConnectionList'];
export type ConnectionOut = components['schemas']['ConnectionOut'];
export type ConversationFeedbackOut = components['schemas']['ConversationFeedbackOut'];
export type ConversationIn = components['schemas']['ConversationIn'];
export type ConversationList = components['schemas']['ConversationList'];
export type ConversationOut = components['schemas']['ConversationOut'];
export type ConversationPatch = components['schemas']['ConversationPatch'];
export type ConversationView = components['schemas']['ConversationView'];
export type CountsOut = components['schemas']['CountsOut'];
export type DeletedOut = components['schemas']['DeletedOut'];
export type DerivedArtifacts = components['schemas']['DerivedArtifacts'];
export type DiffFileOut = components['schemas']['DiffFileOut'];
export type DiffOut = components['schemas']['DiffOut'];
export type DisconnectedOut = components['schemas']['DisconnectedOut'];
export type DocumentList = components['schemas']['DocumentList'];
export type DocumentOut = components['schemas']['DocumentOut'];
export type EmbedTicketIn = components['schemas']['EmbedTicketIn'];
export type EmbedTicketOut = components['schemas']['EmbedTicketOut'];
export type EntryOut = components['schemas']['EntryOut'];
export type ErasedOut = components['schemas']['ErasedOut'];
export type EventIn = components['schemas']['EventIn'];
export type EventView = components['schemas']['EventView'];
export type FeedbackIn = components['schemas']['FeedbackIn'];
export type FeedbackOut = components['schemas']['FeedbackOut'];
export type FeedbackView = components['schemas']['FeedbackView'];
export type FetchIn = components['schemas']['FetchIn'];
export type FetchView = components['schemas']['FetchView'];
export type FileType = components['schemas']['FileType'];
export type FileView = components['schemas']['FileView'];
export type ForgottenOut = components['schemas']['ForgottenOut'];
export type ForkIn = components['schemas']['ForkIn'];
export type ForkOut = components['schemas']['ForkOut'];
export type FoundFileOut = components['schemas']['FoundFileOut'];
export type GuestOut = components['schemas']['GuestOut'];
export type HealthOut = components['schemas']['HealthOut'];
export type HitOut = components['schemas']['HitOut'];
export type IndexEntry = components['schemas']['IndexEntry'];
export type IndexedCall = components['schemas']['IndexedCall'];
export type IndexedFile = components['schemas']['IndexedFile'];
export type MemoryList = components['schemas']['MemoryList'];
export type MemoryOut = components['schemas']['MemoryOut'];
export type MessageLimits = components['schemas']['MessageLimits'];
export type OperationList = components['schemas']['OperationList'];
export type OperationOut = components['schemas']['OperationOut'];
export type OperationResult = components['schemas']['OperationResult'];
export type PartOut = components['schemas']['PartOut'];
export type PeriodIn = components['schemas']['PeriodIn'];
export type PeriodOut = components['schemas']['PeriodOut'];
export type PlanSnapshot = components['schemas']['PlanSnapshot'];
export type PlanStatus = components['schemas']['PlanStatus'];
export type PlanStep = components['schemas']['PlanStep'];
export type Problem = components['schemas']['Problem'];
export type ReadyOut = components['schemas']['ReadyOut'];
export type ReceiptOut = components['schemas']['ReceiptOut'];
export type RoundContextOut = components['schemas']['RoundContextOut'];
export type SearchIn = components['schemas']['SearchIn'];
export type SearchOut = components['schemas']['SearchOut'];
export type SegmentOut = components['schemas']['SegmentOut'];
export type SignalOut = components['schemas']['SignalOut'];
export type SignalPatch = components['schemas']['SignalPatch'];
export type SignalView = components['schemas']['SignalView'];
export type SkillList = components['schemas']['SkillList'];
export type SkillOut = components['schemas']['SkillOut'];
export type SourceView = components['schemas']['SourceView'];
export type StepDetail = components['schemas']['StepDetail'];
export type StepRoundView = components['schemas']['StepRoundView'];
export type StepStatus = components['schemas']['StepStatus'];
export type StepView = components['schemas']['StepView'];
export type SummaryOut = components['schemas']['SummaryOut'];
export type TextView = components['schemas']['TextView'];
export type TicketOut = components['schemas']['TicketOut'];
export type TimelineView = components['schemas']['TimelineView'];
export type TreeOut = components['schemas']['TreeOut'];
export type TurnIndexView = components['schemas']['TurnIndexView'];
export type TurnLogView = components['schemas']['TurnLogView'];
export type TurnOut = components['schemas']['TurnOut'];
export type TurnUsage = components['schemas']['TurnUsage'];
export type TurnView = components['schemas']['TurnView'];
export type TurnsIn = components['schemas']['TurnsIn'];
export type TurnsOut = components['schemas']['TurnsOut'];
export type WidgetAddressOut = components['schemas']['WidgetAddressOut'];
export type WidgetOut = components['schemas']['WidgetOut'];
export type WorkerOut = components['schemas']['WorkerOut'];
export type ProblemDetails = components['schemas']['ProblemDetails'];
export type ChatApproval = components['schemas']['ChatApproval'];
export type ChatApprovalEvent = components['schemas']['ChatApprovalEvent'];
export type ChatCitations = components['schemas']['ChatCitations'];
export type ChatCitationsEvent = components['schemas']['ChatCitationsEvent'];
export type ChatCompaction = components['schemas']['ChatCompaction'];
export type ChatCompactionEvent = components['schemas']['ChatCompactionEvent'];
export type ChatComplete = components['schemas']['ChatComplete'];
export type ChatCompleteEvent = components['schemas']['ChatCompleteEvent'];
export type ChatDelta = components['schemas']['ChatDelta'];
export type ChatDeltaEvent = components['schemas']['ChatDeltaEvent'];
export type ChatError = components['schemas']['ChatError'];
export type ChatErrorEvent = components['schemas']['ChatErrorEvent'];
export type ChatFiles = components['schemas']['ChatFiles'];
export type ChatFilesEvent = components['schemas']['ChatFilesEvent'];
export type ChatFollowups = components['schemas']['ChatFollowups'];
export type ChatFollowupsEvent = components['schemas']['ChatFollowupsEvent'];
export type ChatPhase = components['schemas']['ChatPhase'];
export type ChatPhaseEvent = components['schemas']['ChatPhaseEvent'];
export type ChatPlan = components['schemas']['ChatPlan'];
export type ChatPlanEvent = components['schemas']['ChatPlanEvent'];
export type ChatRewind = components['schemas']['ChatRewind'];
export type ChatRewindEvent = components['schemas']['ChatRewindEvent'];
export type ChatSignal = components['schemas']['ChatSignal'];
export type ChatSignalEvent = components['schemas']['ChatSignalEvent'];
export type ChatStart = components['schemas']['ChatStart'];
export type ChatStartEvent = components['schemas']['ChatStartEvent'];
export type ChatStep = components['schemas']['ChatStep'];
export type ChatStepEvent = components['schemas']['ChatStepEvent'];
export type ChatTool = components['schemas']['ChatTool'];
export type ChatToolEvent = components['schemas']['ChatToolEvent'];
export type ConvStatus = components['schemas']['ConvStatus'];
export type ConvStatusEvent = components['schemas']['ConvStatusEvent'];
export type ConvTitle = components['schemas']['ConvTitle'];
export type ConvTitleEvent = components['schemas']['ConvTitleEvent'];
export type Event = components['schemas']['Event'];
export type Ready = components['schemas']['Ready'];
export type ReadyEvent = components['schemas']['ReadyEvent'];
export type ServerShutdown = components['schemas']['ServerShutdown'];
export type ServerShutdownEvent = components['schemas']['ServerShutdownEvent'];
export type StateView = components['schemas']['StateView'];
export type StreamGap = components['schemas']['StreamGap'];
export type StreamGapEvent = components['schemas']['StreamGapEvent'];
export type StreamSnapshot = components['schemas']['StreamSnapshot'];
export type StreamSnapshotEvent = components['schemas']['StreamSnapshotEvent'];
export type $defs = Record<string, never>;
export type operations = Record<string, never>;
/** All event types of this version. */
export const EVENT_TYPES = ["ready","conv.status","conv.title","chat.start","chat.step","chat.delta","chat.plan","chat.files","chat.citations","chat.followups","chat.compaction","chat.phase","chat.tool","chat.signal","chat.approval","chat.rewind","chat.complete","chat.error","stream.snapshot","stream.gap","server.shutdown"] as const;
/** The fields of a turn that has only begun. */
export const TURN_DEFAULTS = {"approvals":[],"attachments":[],"citations":[],"created_at":"","feedback":[],"files":[],"followups":[],"plans":[],"rounds":0,"sealed_round":0,"signals":[],"sources_used":[],"step_rounds":[],"steps":[],"texts":[]} as const;
