// Server-sent events as the HTML standard defines them, parsed without I/O: bytes in, events out.
import { BadAnswer } from "../http/errors";

export const MAX_EVENT_CHARS = 32 * 1024 * 1024;

/** One dispatched event. `id` is the last id that the stream has told, which may be from an earlier event. */
export interface SseEvent {
  readonly name: string;
  readonly data: string;
  readonly id: string;
}

/** Parses one connection's stream; the same events come out however the bytes are cut. An unfinished event is dropped. */
export class SseParser {
  /** The reconnection time that the server asked for. */
  retryMs: number | undefined;
  private readonly decoder = new TextDecoder();
  private readonly maxEventChars: number;
  private line = "";
  private isAfterCr = false;
  private name = "";
  private id = "";
  private data: string[] = [];
  private eventChars = 0;

  constructor(maxEventChars = MAX_EVENT_CHARS) {
    this.maxEventChars = maxEventChars;
  }

  /** Take the next bytes; returns the events they complete. Raises BadAnswer for an event that is too long. */
  feed(chunk: Uint8Array): SseEvent[] {
    let text = this.decoder.decode(chunk, { stream: true });
    if (text === "") return [];
    // The second half of a CRLF may come with the next bytes.
    if (this.isAfterCr && text.startsWith("\n")) text = text.slice(1);
    this.isAfterCr = false;
    const events: SseEvent[] = [];
    let start = 0;
    for (const end of text.matchAll(/\r\n|\r|\n/g)) {
      this.keep(text.slice(start, end.index));
      start = end.index + end[0].length;
      const event = this.endLine();
      if (event !== null) events.push(event);
    }
    this.keep(text.slice(start));
    this.isAfterCr = text.endsWith("\r");
    return events;
  }

  private keep(part: string): void {
    this.eventChars += part.length;
    if (this.eventChars > this.maxEventChars) throw new BadAnswer(`an event has more than ${this.maxEventChars} characters`);
    this.line += part;
  }

  private endLine(): SseEvent | null {
    const line = this.line;
    this.line = "";
    if (line === "") return this.dispatch();
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1);
    this.takeField(field, value.startsWith(" ") ? value.slice(1) : value);
    return null;
  }

  private takeField(field: string, value: string): void {
    if (field === "data") this.data.push(value);
    else if (field === "event") this.name = value;
    else if (field === "id" && !value.includes("\0")) this.id = value;
    else if (field === "retry" && /^[0-9]{1,9}$/.test(value)) this.retryMs = Number(value);
    // Anything else is a comment, which begins with a colon, or a field that the standard does not know.
  }

  private dispatch(): SseEvent | null {
    const { name, data, id } = this;
    this.name = "";
    this.data = [];
    this.eventChars = 0;
    return data.length === 0 ? null : { name: name === "" ? "message" : name, data: data.join("\n"), id };
  }
}
