// @vitest-environment node
import fc from "fast-check";
import { describe, expect, it } from "vitest";

import { BadAnswer } from "../http/errors";
import { type SseEvent, SseParser } from "./sse";

function parse(chunks: readonly Uint8Array[]): SseEvent[] {
  const parser = new SseParser();
  return chunks.flatMap((chunk) => parser.feed(chunk));
}

function encode(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

/** The bytes in pieces that end at these places. */
function cut(bytes: Uint8Array, places: readonly number[]): Uint8Array[] {
  const ends = [...places.map((place) => place % (bytes.length + 1)), bytes.length].sort((one, other) => one - other);
  return ends.map((end, index) => bytes.subarray(ends[index - 1] ?? 0, end));
}

const word = fc.string({ unit: "grapheme", maxLength: 12 }).map((text) => text.replaceAll(/[\r\n\0]/g, ""));
const frame = fc.record({
  id: fc.option(word, { nil: undefined }),
  name: fc.option(word, { nil: undefined }),
  lines: fc.array(word, { minLength: 1, maxLength: 3 }),
  comment: fc.boolean(),
});

describe("a stream of server-sent events", () => {
  it("gives the same events however it is cut and whichever line ends it has", () => {
    const ends = fc.constantFrom("\n", "\r\n", "\r");
    fc.assert(
      fc.property(fc.array(frame, { maxLength: 5 }), ends, fc.array(fc.nat(), { maxLength: 8 }), (frames, end, places) => {
        let id = "";
        const expected = frames.map((each) => {
          id = each.id ?? id;
          return { name: each.name === undefined || each.name === "" ? "message" : each.name, data: each.lines.join("\n"), id };
        });
        const text = frames
          .flatMap((each) => [
            ...(each.comment ? [": ping", ""] : []),
            ...(each.id === undefined ? [] : [`id: ${each.id}`]),
            ...(each.name === undefined ? [] : [`event: ${each.name}`]),
            ...each.lines.map((line) => `data: ${line}`),
            "",
          ])
          .map((line) => line + end)
          .join("");

        expect(parse(cut(encode(text), places))).toEqual(expected);
      }),
      { numRuns: 300 },
    );
  });

  it("drops what it does not finish and comments, and takes the time that the server asks for", () => {
    const parser = new SseParser();

    const events = parser.feed(encode(": ping\n\nretry: 1500\nretry: soon\ndata: one\n\ndata: two\n"));

    expect(events).toEqual([{ name: "message", data: "one", id: "" }]);
    expect(parser.retryMs).toBe(1500);
  });

  it("refuses an event that has no end", () => {
    const parser = new SseParser(10);

    expect(() => parser.feed(encode("data: 12345\n\ndata: 123456789"))).toThrow(BadAnswer);
  });
});
