// Everything that the screens ask of the server, one method each.
import { TIMINGS, type Timings } from "./http/backoff";
import { ProblemError } from "./http/errors";
import { makeKey } from "./http/keys";
import { type Call, Requests } from "./http/requests";
import type {
  Accepted,
  ConversationList,
  ConversationPatch,
  ConversationView,
  Erased,
  FeedbackReceipt,
  FileView,
  Forked,
  Guest,
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
} from "./types";

export interface Scope {
  readonly tenant: string;
  readonly project: string;
}

export interface ClientOptions extends Scope {
  /** The server's origin; left out for the one that this page is from. */
  readonly baseUrl?: string;
  /** The bearer credential as it is now; a server in development mode needs none. */
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
  /** Whether words for a running turn add to it or redirect it. */
  readonly kind?: "followup" | "steer" | undefined;
  /** The same for a repetition of the same message, so that it is never doubled. */
  readonly key: string;
  /** Called with the share of bytes that has left, from 0 to 1. */
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
  /** The last turn to copy; left out for the last one that ended. */
  readonly turnId?: string;
  /** Left out for the title of the original. */
  readonly title?: string;
}

export interface WantedTurns {
  cursor?: string;
  limit?: number;
}

/** One person's access to one tenant and project. All methods raise ProblemError, Unreachable and BadAnswer. */
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

  /** Where the events of a conversation are. */
  eventsPath(conversationId: string): string {
    return this.path(conversationId, "events");
  }

  /** One page, newest activity first. `search` is a part of the title. */
  listConversations(query: ListQuery = {}, abort?: AbortSignal): Promise<ConversationList> {
    const { search, isArchived, limit, cursor } = query;
    const q = search === "" ? undefined : search;
    const asked = { q, archived: isArchived ? "true" : undefined, limit: limit?.toString(), cursor };
    return this.requests.send({ method: "GET", path: this.path(), query: asked, abort });
  }

  /** What was said, in any conversation of the person: the best first. */
  searchTexts(wanted: SearchQuery, abort?: AbortSignal): Promise<SearchHits> {
    return this.read(this.path("search"), wanted, abort);
  }

  /** Rename a conversation, put it into the archive, or take it out. */
  patchConversation(conversationId: string, patch: ConversationPatch): Promise<ConversationView> {
    return this.patch(this.path(conversationId), patch);
  }

  /** Erase a conversation with all that belongs to it. */
  deleteConversation(conversationId: string): Promise<Erased> {
    return this.requests.send({ method: "DELETE", path: this.path(conversationId) });
  }

  /** A new conversation with everything up to the end of a turn, of the last ended one without. */
  forkConversation(conversationId: string, { turnId, title }: WantedFork = {}, key: string = makeKey()): Promise<Forked> {
    const json = { ...(turnId === undefined ? {} : { turn_id: turnId }), ...(title === undefined ? {} : { title }) };
    return this.requests.send({ method: "POST", path: this.path(conversationId, "fork"), json, key });
  }

  exportConversation(conversationId: string, abort?: AbortSignal): Promise<Blob> {
    return this.requests.load(this.path(conversationId, "export"), abort);
  }

  /** Send a message, to `new` for a new conversation. While a turn runs it becomes a signal into that turn. */
  async sendMessage(conversationId: string, message: Outgoing): Promise<Accepted> {
    const { text, kind, files, key, onProgress, abort } = message;
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone as string | undefined;
    const fields = { text, ...(kind === undefined ? {} : { kind }) };
    const call = { path: this.path(conversationId, "messages"), key, abort };
    if (zone === undefined) return this.submit(call, fields, files ?? [], onProgress);
    try {
      return await this.submit(call, { ...fields, time_zone: zone }, files ?? [], onProgress);
    } catch (error) {
      // Browsers and servers have databases of their own: a zone that only one of them knows must not stop a message.
      const isRefused = error instanceof ProblemError && error.fields.some(({ field }) => field === "body.time_zone");
      if (!isRefused) throw error;
      return this.submit(call, fields, files ?? [], onProgress);
    }
  }

  /** Say something to the running turn, or answer an approval. A blank steer stops it, a cancel ends it. */
  sendSignal(conversationId: string, signal: Signalled): Promise<Accepted> {
    const { kind, text = "", approvalId, files, key = makeKey() } = signal;
    const fields = { kind, text, ...(approvalId === undefined ? {} : { approval_id: approvalId }) };
    return this.submit({ path: this.path(conversationId, "signals"), key }, fields, files ?? []);
  }

  /** Change a signal that was not applied yet. */
  editSignal(conversationId: string, signalId: string, text: string): Promise<SentSignal> {
    return this.patch(this.path(conversationId, "signals", signalId), { text });
  }

  /** Take back a signal that was not applied yet. */
  retractSignal(conversationId: string, signalId: string): Promise<SentSignal> {
    return this.requests.send({ method: "DELETE", path: this.path(conversationId, "signals", signalId) });
  }

  /** Judge a turn; a second judgement replaces the first, null without a text clears it. */
  judgeTurn(conversationId: string, turnId: string, reaction: Reaction | null, text = ""): Promise<FeedbackReceipt> {
    return this.read(this.path(conversationId, "turns", turnId, "feedback"), { reaction, text });
  }

  /** The conversation with `limit` turns before `cursor`: the last ones without, as many as the server likes without a limit. */
  loadTurns(conversationId: string, wanted: WantedTurns, abort?: AbortSignal): Promise<StateView> {
    return this.read(this.path("fetch"), { conversation_id: conversationId, ...wanted }, abort);
  }

  getTurn(conversationId: string, turnId: string, abort?: AbortSignal): Promise<Turn> {
    return this.requests.send({ method: "GET", path: this.path(conversationId, "turns", turnId), abort });
  }

  /** One step with its whole program and result, of which the turn has the beginning. */
  getStep(conversationId: string, turnId: string, step: string, abort?: AbortSignal): Promise<StepDetail> {
    return this.requests.send({ method: "GET", path: this.path(conversationId, "turns", turnId, "steps", step), abort });
  }

  /** What the model was sent in a round, part by part. */
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

  /** A file's content, with the person's credential. */
  loadFile(file: Pick<FileView, "url">, abort?: AbortSignal): Promise<Blob> {
    return this.requests.load(file.url, abort);
  }

  /** How large a message and its files may be here. */
  loadLimits(abort?: AbortSignal): Promise<MessageLimits> {
    return this.requests.send({ method: "GET", path: `/limits/${this.scope}`, abort });
  }

  /** Whether people without an account are let in here. */
  async takesGuests(abort?: AbortSignal): Promise<boolean> {
    try {
      await this.requests.load(`/guests/${this.scope}`, abort);
      return true;
    } catch (error) {
      if (error instanceof ProblemError && (error.status === 403 || error.status === 404)) return false;
      throw error;
    }
  }

  /** Come in without an account, where the operator lets guests in; 403 elsewhere. */
  createGuest(): Promise<Guest> {
    return this.requests.send({ method: "POST", path: `/guests/${this.scope}` });
  }

  /** A call that may be repeated, because a second one changes nothing more. */
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
