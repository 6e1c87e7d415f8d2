/**
 * What a widget and our page say to each other. The widget is a page by others: its messages are read only within limits,
 * and it learns no more than is sent here. All messages are JSON texts, so that their size is known before they are read.
 */
import type { TextView, TurnView } from "../api";

export const LIMITS = {
  /** Messages of a widget: a bucket of so many, refilled by so many each second. */
  burst: 60,
  perSecond: 20,
  /** So many dropped messages, without a pause in which the bucket fills up, stop the widget. */
  dropped: 1_000,
  messageChars: 65_536,
  callsAtOnce: 4,
  waitingCalls: 16,
  proposalChars: 4_000,
  /** Between two deliveries of texts to the widget, and how many characters one may have. */
  deliveryMs: 100,
  deliveryChars: 262_144,
} as const;

/** Markers of texts that belong to the conversation itself; all others are for widgets too. */
const OWN_MARKERS = new Set(["", "thinking", "answer", "timeline_text", "followup"]);
const OPERATION = /^[A-Za-z_][A-Za-z0-9_]{0,63}$/;
const MAX_ID_CHARS = 64;

export interface WidgetProblem {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
}

export type CallId = string | number;

interface Message {
  readonly everturn: "ready" | "call" | "message";
  readonly id?: CallId;
  readonly operation?: string;
  readonly arguments?: object;
  readonly text?: string;
}

interface BridgeOptions {
  readonly conversationId: string;
  /** Sends a text to the page of the widget. */
  readonly post: (text: string) => void;
  /** Calls an operation. Raises whatever `describe` can say. */
  readonly call: (operation: string, args: object) => Promise<unknown>;
  readonly describe: (error: unknown) => WidgetProblem;
  /** Asks the person whether to send this message; answered by `answerProposal`. */
  readonly propose: (text: string) => void;
  /** How many messages were dropped. Called a bounded number of times, whatever the widget does. */
  readonly onDropped: (count: number) => void;
  /** The widget has to be removed from the page. */
  readonly onStop: (reason: string) => void;
  readonly now?: () => number;
}

interface WaitingCall {
  readonly id: CallId;
  readonly operation: string;
  readonly args: object;
}

export class WidgetBridge {
  private readonly options: BridgeOptions;
  private readonly now: () => number;
  private tokens: number = LIMITS.burst;
  private filledAt: number;
  private dropped = 0;
  private isReady = false;
  private isClosed = false;
  private running = 0;
  private waiting: WaitingCall[] = [];
  private proposal: CallId | null = null;
  private turns: readonly TurnView[] = [];
  /** What the widget has, by text and by turn. */
  private readonly sent = new Map<string, string>();
  private delivery: ReturnType<typeof setTimeout> | undefined;

  constructor(options: BridgeOptions) {
    this.options = options;
    this.now = options.now ?? (() => performance.now());
    this.filledAt = this.now();
  }

  /** The data of a dropped message is not even read: the browser copies it only then. */
  receive(event: { readonly data: unknown }): void {
    if (this.isClosed) return;
    if (!this.draw()) {
      this.drop();
      return;
    }
    const { data } = event;
    if (typeof data !== "string") return;
    if (data.length > LIMITS.messageChars) {
      this.stop(`It sent a message of more than ${LIMITS.messageChars.toLocaleString("en")} characters.`);
      return;
    }
    const message = tryRead(data);
    if (message !== null) this.handle(message);
  }

  /** The turns of the conversation as they are now; the widget gets what is new for it. */
  update(turns: readonly TurnView[]): void {
    this.turns = turns;
    this.scheduleDelivery();
  }

  /** The person's answer to the last proposed message. */
  answerProposal(isSent: boolean): void {
    if (this.proposal === null) return;
    this.post({ everturn: "result", id: this.proposal, result: { sent: isSent } });
    this.proposal = null;
  }

  close(): void {
    this.isClosed = true;
    this.waiting = [];
    clearTimeout(this.delivery);
  }

  private handle(message: Message): void {
    const { everturn, id } = message;
    if (everturn === "ready") {
      // A page that was loaded again has nothing.
      this.isReady = true;
      this.sent.clear();
      this.post({ everturn: "start", version: 1, conversation_id: this.options.conversationId });
      this.scheduleDelivery();
    } else if (id !== undefined) {
      if (everturn === "call") this.handleCall(id, message);
      else this.handleProposal(id, message.text);
    }
  }

  private handleCall(id: CallId, { operation, arguments: args = {} }: Message): void {
    if (operation === undefined || !OPERATION.test(operation)) {
      this.refuse(id, 422, "`operation` is not the name of an operation.");
    } else if (this.waiting.length >= LIMITS.waitingCalls) {
      this.refuse(id, 429, `${LIMITS.waitingCalls} calls of this widget wait already. Call again when one has ended.`);
    } else {
      this.waiting.push({ id, operation, args });
      this.callNext();
    }
  }

  private callNext(): void {
    while (this.running < LIMITS.callsAtOnce) {
      const next = this.waiting.shift();
      if (next === undefined) return;
      this.running += 1;
      void this.run(next);
    }
  }

  private async run({ id, operation, args }: WaitingCall): Promise<void> {
    try {
      this.post({ everturn: "result", id, result: await this.options.call(operation, args) });
    } catch (error) {
      this.post({ everturn: "error", id, error: this.options.describe(error) });
    } finally {
      this.running -= 1;
      if (!this.isClosed) this.callNext();
    }
  }

  private handleProposal(id: CallId, text = ""): void {
    if (text.trim() === "" || text.length > LIMITS.proposalChars) {
      this.refuse(id, 422, `\`text\` must have 1 to ${LIMITS.proposalChars.toLocaleString("en")} characters.`);
    } else if (this.proposal !== null) {
      this.refuse(id, 429, "Another message from this widget is waiting for the person.");
    } else {
      this.proposal = id;
      this.options.propose(text);
    }
  }

  private refuse(id: CallId, status: number, detail: string): void {
    const [kind, title] = status === 429 ? ["too-many", "Too many requests"] : ["unprocessable", "The request is invalid"];
    this.post({ everturn: "error", id, error: { type: `urn:everturn:problem:${kind}`, title, status, detail } });
  }

  private post(message: object): void {
    if (!this.isClosed) this.options.post(JSON.stringify(message));
  }

  private draw(): boolean {
    const now = this.now();
    this.tokens = Math.min(LIMITS.burst, this.tokens + ((now - this.filledAt) / 1000) * LIMITS.perSecond);
    this.filledAt = now;
    if (this.tokens >= LIMITS.burst) this.dropped = 0;
    if (this.tokens < 1) return false;
    this.tokens -= 1;
    return true;
  }

  private drop(): void {
    this.dropped += 1;
    if (this.dropped >= LIMITS.dropped) {
      this.stop(`It sent more than ${LIMITS.perSecond} messages each second for too long.`);
    } else if (this.dropped === 1 || this.dropped % 100 === 0) {
      this.options.onDropped(this.dropped);
      this.post({ everturn: "dropped", count: this.dropped });
    }
  }

  private stop(reason: string): void {
    this.close();
    this.options.onStop(reason);
  }

  private scheduleDelivery(): void {
    if (!this.isReady || this.isClosed || this.delivery !== undefined) return;
    this.delivery = setTimeout(() => {
      this.delivery = undefined;
      if (this.deliver()) this.scheduleDelivery();
    }, LIMITS.deliveryMs);
  }

  /** Sends what the widget does not have. Returns whether something is left for the next delivery. */
  private deliver(): boolean {
    let left: number = LIMITS.deliveryChars;
    for (const turn of this.turns) {
      for (const text of turn.texts) {
        if (OWN_MARKERS.has(text.marker)) continue;
        if (left <= 0) return true;
        left -= this.sendText(turn, text, left);
        if (this.sent.get(keyOf(turn, text)) !== text.text) return true;
      }
      if (left <= 0) return true;
      left -= this.sendStatus(turn);
    }
    return false;
  }

  /** At most `limit` characters of what is new; returns how many there were. */
  private sendText(turn: TurnView, text: TextView, limit: number): number {
    const key = keyOf(turn, text);
    const had = this.sent.get(key);
    if (had === text.text) return 0;
    // A text that begins differently is sent as a whole.
    const offset = had !== undefined && text.text.startsWith(had) ? had.length : 0;
    const piece = text.text.slice(offset, offset + limit);
    const { round, channel, instance, marker, format, artifact } = text;
    this.sent.set(key, text.text.slice(0, offset + piece.length));
    this.post({ everturn: "text", turn_id: turn.turn_id, round, channel, instance, marker, format, artifact, offset, text: piece });
    return piece.length;
  }

  private sendStatus({ turn_id, status }: TurnView): number {
    if (this.sent.get(turn_id) === status) return 0;
    this.sent.set(turn_id, status);
    this.post({ everturn: "turn", turn_id, status });
    return status.length;
  }
}

function keyOf(turn: TurnView, { round, channel, instance }: TextView): string {
  return `${turn.turn_id}/${round}/${instance}/${channel}`;
}

/** Null for what is no message. */
function tryRead(data: string): Message | null {
  let value: unknown;
  try {
    value = JSON.parse(data);
  } catch {
    return null; // a text that is meant for somebody else
  }
  if (!isObject(value)) return null;
  const { everturn, id, operation, arguments: args, text } = value;
  if (everturn !== "ready" && everturn !== "call" && everturn !== "message") return null;
  if (args !== undefined && !isObject(args)) return null;
  return {
    everturn,
    ...(isCallId(id) ? { id } : {}),
    ...(typeof operation === "string" ? { operation } : {}),
    ...(args === undefined ? {} : { arguments: args }),
    ...(typeof text === "string" ? { text } : {}),
  };
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isCallId(value: unknown): value is CallId {
  return typeof value === "number" || (typeof value === "string" && value.length <= MAX_ID_CHARS);
}
