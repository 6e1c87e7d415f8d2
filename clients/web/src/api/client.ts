// All API calls that the screens make, one method each.
import { TIMINGS, type Timings } from "./http/backoff";
import { ProblemError } from "./http/errors";
import { makeKey } from "./http/keys";
import { type Call, Requests } from "./http/requests";
import type {
  Accepted,
  AgentList,
  Collection,
  CollectionList,
  CommitList,
  ConnectedAccount,
  ConnectedAccounts,
  ConversationList,
  ConversationPatch,
  ConversationView,
  Diff,
  Erased,
  FeedbackReceipt,
  FileView,
  Folder,
  Forked,
  Guest,
  KeptDocuments,
  MessageLimits,
  Reaction,
  RoundContext,
  SearchHits,
  SearchQuery,
  SentSignal,
  SignalKind,
  StateView,
  StepDetail,
  Turn,
  WidgetAddress,
} from "./types";

export interface Scope {
  readonly tenant: string;
  readonly project: string;
}

export interface ClientOptions extends Scope {
  /** The server's origin; omit it for the origin of this page. */
  readonly baseUrl?: string;
  /** Returns the current bearer credential; a server in development mode needs none. */
  readonly token?: () => string | undefined;
  readonly timings?: Timings;
  readonly random?: () => number;
  readonly fetch?: typeof fetch;
}

export interface ListQuery {
  readonly search?: string | undefined;
  readonly isArchived?: boolean | undefined;
  readonly limit?: number | undefined;
  readonly cursor?: string | undefined;
}

export interface Outgoing {
  readonly text: string;
  readonly files?: readonly File[];
  /** Whether a message to a running turn adds to it or redirects it. */
  readonly kind?: "followup" | "steer" | undefined;
  /** The agent of the conversation that this message creates; the server's default without it. */
  readonly bundleId?: string | undefined;
  /** Reuse the key when the same message is sent again, so that it is accepted only once. */
  readonly key: string;
  /** Called with the share of bytes already sent, from 0 to 1. */
  readonly onProgress?: ((share: number) => void) | undefined;
  readonly abort?: AbortSignal | undefined;
}

export interface Signalled {
  readonly kind: SignalKind;
  readonly text?: string | undefined;
  readonly approvalId?: string | undefined;
  readonly files?: readonly File[];
  readonly key?: string | undefined;
}

export interface WantedFork {
  /** The last turn to copy; omit it for the last completed turn. */
  readonly turnId?: string;
  /** Omit it to keep the title of the original. */
  readonly title?: string;
}

export interface WantedTurns {
  cursor?: string;
  limit?: number;
}

export interface WantedCommits {
  /** The `next_before` of the previous page; omit it for the newest commits. */
  readonly before?: string | undefined;
  readonly limit?: number;
}

/** One person's access to one tenant and project. All methods raise ProblemError, Unreachable and InvalidResponse. */
export class EverturnClient {
  readonly requests: Requests;
  readonly timings: Timings;
  readonly random: () => number;
  private readonly scope: string;

  constructor(options: ClientOptions) {
    this.timings = options.timings ?? TIMINGS;
    this.random = options.random ?? Math.random;
    this.scope = `${encodeURIComponent(options.tenant)}/${encodeURIComponent(options.project)}`;
    this.requests = new Requests({
      baseUrl: options.baseUrl ?? "",
      token: options.token ?? (() => undefined),
      timings: this.timings,
      random: this.random,
      fetch: options.fetch ?? ((address, init) => fetch(address, init)),
    });
  }

  /** The URL of a conversation's event stream. */
  eventsPath(conversationId: string): string {
    return this.path(conversationId, "events");
  }

  /** One page, most recent activity first. `search` matches part of the title. */
  listConversations(query: ListQuery = {}, abort?: AbortSignal): Promise<ConversationList> {
    const { search, isArchived, limit, cursor } = query;
    const q = search === "" ? undefined : search;
    const parameters = { q, archived: isArchived ? "true" : undefined, limit: limit?.toString(), cursor };
    return this.requests.send({ method: "GET", path: this.path(), query: parameters, abort });
  }

  /** Searches all conversations of the caller, best match first. */
  searchTexts(wanted: SearchQuery, abort?: AbortSignal): Promise<SearchHits> {
    return this.read(this.path("search"), wanted, abort);
  }

  /** Change a conversation, such as its title. Absent fields stay as they are. */
  patchConversation(conversationId: string, patch: ConversationPatch): Promise<ConversationView> {
    return this.patch(this.path(conversationId), patch);
  }

  /** Erase a conversation and everything that belongs to it. */
  deleteConversation(conversationId: string): Promise<Erased> {
    return this.requests.send({ method: "DELETE", path: this.path(conversationId) });
  }

  /** Copy a conversation up to the end of a turn, by default the last completed one. */
  forkConversation(conversationId: string, { turnId, title }: WantedFork = {}, key: string = makeKey()): Promise<Forked> {
    const json = { ...(turnId === undefined ? {} : { turn_id: turnId }), ...(title === undefined ? {} : { title }) };
    return this.requests.send({ method: "POST", path: this.path(conversationId, "fork"), json, key });
  }

  exportConversation(conversationId: string, abort?: AbortSignal): Promise<Blob> {
    return this.requests.load(this.path(conversationId, "export"), abort);
  }

  /** Send a message; the id `new` creates a conversation. While a turn runs, the message becomes a signal to it. */
  async sendMessage(conversationId: string, message: Outgoing): Promise<Accepted> {
    const { text, kind, bundleId, files, key, onProgress, abort } = message;
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone as string | undefined;
    const fields = { text, ...(kind === undefined ? {} : { kind }), ...(bundleId === undefined ? {} : { bundle_id: bundleId }) };
    const call = { path: this.path(conversationId, "messages"), key, abort };
    if (zone === undefined) return this.submit(call, fields, files ?? [], onProgress);
    try {
      return await this.submit(call, { ...fields, time_zone: zone }, files ?? [], onProgress);
    } catch (error) {
      // The browser may know a time zone that the server does not. Retry without it instead of failing.
      const isRefused = error instanceof ProblemError && error.fields.some(({ field }) => field === "body.time_zone");
      if (!isRefused) throw error;
      return this.submit(call, fields, files ?? [], onProgress);
    }
  }

  /** Send a signal to the running turn, or answer an approval. A steer without text stops the turn, a cancel ends it. */
  sendSignal(conversationId: string, signal: Signalled): Promise<Accepted> {
    const { kind, text = "", approvalId, files, key = makeKey() } = signal;
    const fields = { kind, text, ...(approvalId === undefined ? {} : { approval_id: approvalId }) };
    return this.submit({ path: this.path(conversationId, "signals"), key }, fields, files ?? []);
  }

  /** Edit a signal that has not been applied yet. */
  editSignal(conversationId: string, signalId: string, text: string): Promise<SentSignal> {
    return this.patch(this.path(conversationId, "signals", signalId), { text });
  }

  /** Retract a signal that has not been applied yet. */
  retractSignal(conversationId: string, signalId: string): Promise<SentSignal> {
    return this.requests.send({ method: "DELETE", path: this.path(conversationId, "signals", signalId) });
  }

  /** Rate a turn. A second rating replaces the first; a null reaction without a text removes it. */
  rateTurn(conversationId: string, turnId: string, reaction: Reaction | null, text = ""): Promise<FeedbackReceipt> {
    return this.read(this.path(conversationId, "turns", turnId, "feedback"), { reaction, text });
  }

  /**
   * The conversation with `limit` turns before `cursor`. Without a cursor: the last turns; without a limit: the
   * server's default.
   */
  loadTurns(conversationId: string, wanted: WantedTurns, abort?: AbortSignal): Promise<StateView> {
    return this.read(this.path("fetch"), { conversation_id: conversationId, ...wanted }, abort);
  }

  getTurn(conversationId: string, turnId: string, abort?: AbortSignal): Promise<Turn> {
    return this.requests.send({ method: "GET", path: this.path(conversationId, "turns", turnId), abort });
  }

  /** One step with its whole program and result; a turn contains only the beginning of them. */
  getStep(conversationId: string, turnId: string, step: string, abort?: AbortSignal): Promise<StepDetail> {
    return this.requests.send({ method: "GET", path: this.path(conversationId, "turns", turnId, "steps", step), abort });
  }

  /** What was sent to the model in a round, part by part. */
  loadRoundContext(
    conversationId: string,
    turnId: string,
    round: number,
    cursor?: string,
    abort?: AbortSignal,
  ): Promise<RoundContext> {
    const path = this.path(conversationId, "turns", turnId, "rounds", String(round), "context");
    return this.requests.send({ method: "GET", path, query: { cursor }, abort });
  }

  /** Downloads a file with the user's credential. */
  loadFile(file: Pick<FileView, "url">, abort?: AbortSignal): Promise<Blob> {
    return this.requests.load(file.url, abort);
  }

  /** One page of the commits of the workspace, newest first. */
  listCommits(conversationId: string, { before, limit }: WantedCommits = {}, abort?: AbortSignal): Promise<CommitList> {
    const query = { before, limit: limit?.toString() };
    return this.requests.send({ method: "GET", path: this.path(conversationId, "workspace", "commits"), query, abort });
  }

  /** What is in a folder of the workspace after a commit; an empty path is the whole workspace. */
  loadFolder(conversationId: string, commit: string, folder: string, abort?: AbortSignal): Promise<Folder> {
    const query = { at: commit, folder: folder === "" ? undefined : folder };
    return this.requests.send({ method: "GET", path: this.path(conversationId, "workspace", "tree"), query, abort });
  }

  /** What a commit changed in the workspace, in all files or in one. */
  loadDiff(conversationId: string, commit: string, path?: string, abort?: AbortSignal): Promise<Diff> {
    const query = { to: commit, path };
    return this.requests.send({ method: "GET", path: this.path(conversationId, "workspace", "diff"), query, abort });
  }

  /** The URL of a file of the workspace as it was after a commit. */
  workspaceFilePath(conversationId: string, commit: string, path: string): string {
    const query = new URLSearchParams({ at: commit, path });
    return `${this.path(conversationId, "workspace", "file")}?${query.toString()}`;
  }

  /** The URL from which git clones the workspace. */
  clonePath(conversationId: string): string {
    return this.path(conversationId, "workspace.git");
  }

  /** The limits for a message and its files. */
  loadLimits(abort?: AbortSignal): Promise<MessageLimits> {
    return this.requests.send({ method: "GET", path: `/limits/${this.scope}`, abort });
  }

  /** The agents that the caller may use: the default one first, then by title. */
  loadAgents(abort?: AbortSignal): Promise<AgentList> {
    return this.requests.send({ method: "GET", path: `/bundles/${this.scope}`, abort });
  }

  /** The collections that the caller may read: its own first. */
  listCollections(abort?: AbortSignal): Promise<CollectionList> {
    return this.requests.send({ method: "GET", path: this.collectionPath(), abort });
  }

  createCollection(title: string): Promise<Collection> {
    return this.requests.send({ method: "POST", path: this.collectionPath(), json: { title } });
  }

  /** Delete a collection with its documents. */
  deleteCollection(collectionId: string): Promise<unknown> {
    return this.requests.send({ method: "DELETE", path: this.collectionPath(collectionId) });
  }

  listDocuments(collectionId: string, abort?: AbortSignal): Promise<KeptDocuments> {
    return this.requests.send({ method: "GET", path: this.collectionPath(collectionId, "documents"), abort });
  }

  /** Add files to a collection; a file replaces the document of its name. */
  addDocuments(collectionId: string, files: readonly File[], onProgress?: (share: number) => void): Promise<KeptDocuments> {
    const form = (): FormData => {
      const parts = new FormData();
      for (const file of files) parts.append("files", file, file.name);
      return parts;
    };
    return this.requests.send({ method: "POST", path: this.collectionPath(collectionId, "documents"), upload: { form, onProgress } });
  }

  deleteDocument(collectionId: string, documentId: string): Promise<unknown> {
    return this.requests.send({ method: "DELETE", path: this.collectionPath(collectionId, "documents", documentId) });
  }

  /** The caller's accounts at MCP servers that agents can use: the latest first. */
  listConnections(abort?: AbortSignal): Promise<ConnectedAccounts> {
    return this.requests.send({ method: "GET", path: `/mcp-connections/${this.scope}`, abort });
  }

  deleteConnection({ bundle_id: agentId, server }: Pick<ConnectedAccount, "bundle_id" | "server">): Promise<unknown> {
    const path = `/mcp-connections/${this.scope}/${encodeURIComponent(agentId)}/${encodeURIComponent(server)}`;
    return this.requests.send({ method: "DELETE", path });
  }

  /** Where the page of an agent's widget is; the address expires. */
  loadWidget(agentId: string, name: string, abort?: AbortSignal): Promise<WidgetAddress> {
    const path = `/bundles/${this.scope}/${encodeURIComponent(agentId)}/widgets/${encodeURIComponent(name)}`;
    return this.requests.send({ method: "GET", path, abort });
  }

  /** Call an operation of an agent's own code. It is not repeated: it may change something. */
  async callOperation(agentId: string, name: string, args: object, abort?: AbortSignal): Promise<unknown> {
    const path = `/bundles/${this.scope}/${encodeURIComponent(agentId)}/operations/${encodeURIComponent(name)}`;
    const call = { method: "POST", path, json: args, keepsNulls: true, abort } as const;
    return (await this.requests.send<{ readonly result: unknown }>(call)).result;
  }

  /** Whether guests may sign in here. */
  async allowsGuests(abort?: AbortSignal): Promise<boolean> {
    try {
      await this.requests.load(`/guests/${this.scope}`, abort);
      return true;
    } catch (error) {
      if (error instanceof ProblemError && (error.status === 403 || error.status === 404)) return false;
      throw error;
    }
  }

  /** Create a guest account where the operator allows guests; 403 otherwise. */
  createGuest(): Promise<Guest> {
    return this.requests.send({ method: "POST", path: `/guests/${this.scope}` });
  }

  /** A call that is safe to repeat because repeating it changes nothing. */
  private read<Body>(path: string, json: unknown, abort?: AbortSignal): Promise<Body> {
    return this.requests.send({ method: "POST", path, json, isRead: true, abort });
  }

  private patch<Body>(path: string, json: unknown): Promise<Body> {
    return this.requests.send({ method: "PATCH", path, json });
  }

  private submit(
    call: Pick<Call, "path" | "abort"> & { readonly key: string },
    fields: object,
    files: readonly File[],
    onProgress?: (share: number) => void,
  ): Promise<Accepted> {
    if (files.length === 0) return this.requests.send({ method: "POST", ...call, json: fields });
    const form = () => buildForm(fields, files);
    return this.requests.send({ method: "POST", ...call, upload: { form, onProgress } });
  }

  private collectionPath(...parts: readonly string[]): string {
    return ["/collections", this.scope, ...parts.map(encodeURIComponent)].join("/");
  }

  private path(...parts: readonly string[]): string {
    return ["/conversations", this.scope, ...parts.map(encodeURIComponent)].join("/");
  }
}

function buildForm(fields: object, files: readonly File[]): FormData {
  const form = new FormData();
  form.append("message", new Blob([JSON.stringify(fields)], { type: "application/json" }));
  for (const file of files) form.append("files", file, file.name);
  return form;
}
