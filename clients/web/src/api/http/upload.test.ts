import { describe, expect, it } from "vitest";

import { EverturnClient } from "../client";
import { TestServer, breakOff, json, problem, silence } from "../testing/server";
import { TIMINGS } from "./backoff";
import { ProblemError, Unreachable } from "./errors";

const FAST = { ...TIMINGS, firstDelayMs: 1, maxDelayMs: 2, uploadSilenceMs: 2_000, attempts: 2 };
const ACCEPTED = { conversation_id: "conv_1", turn_id: "turn_1", receipt: { state: "queued" }, events_url: "/" };

function build(server: TestServer, timings = FAST): EverturnClient {
  return new EverturnClient({ baseUrl: server.url, tenant: "a", project: "b", token: () => "secret", timings });
}

const FILES = [new File(["a,b\n"], "sales.csv", { type: "text/csv" })];
const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

describe("a message with files", () => {
  it("is sent as a form, retried with its key, and reports its progress", async () => {
    const server = await TestServer.start(breakOff, json(ACCEPTED, 202));
    const shares: number[] = [];

    const accepted = await build(server).sendMessage("conv_1", {
      text: "Look",
      files: FILES,
      key: "k1",
      onProgress: (share) => shares.push(share),
    });

    expect(accepted.turn_id).toBe("turn_1");
    expect(server.requests.map((requests) => requests.headers["idempotency-key"])).toEqual(["k1", "k1"]);
    expect(server.requests[1]?.headers.authorization).toBe("Bearer secret");
    expect(server.requests[1]?.body).toContain(JSON.stringify({ text: "Look", time_zone: ZONE }));
    expect(server.requests[1]?.body).toContain('filename="sales.csv"');
    expect(shares.at(-1)).toBe(1);
  });

  it("reports which file was rejected and why", async () => {
    const server = await TestServer.start(problem(415, { errors: [{ field: "sales.csv", message: "It is a program." }] }));

    const refusal = await build(server).sendMessage("conv_1", { text: "", files: FILES, key: "k1" }).catch((error: unknown) => error);

    expect(refusal).toBeInstanceOf(ProblemError);
    expect(refusal).toMatchObject({ fields: [{ field: "sales.csv", message: "It is a program." }] });
  });

  it("ends when its sender aborts it", async () => {
    const server = await TestServer.start(silence);
    const abort = new AbortController();
    const sending = build(server).sendMessage("conv_1", { text: "", files: FILES, key: "k1", abort: abort.signal });

    abort.abort();

    await expect(sending).rejects.toMatchObject({ name: "AbortError" });
  });

  it("is unreachable when no byte moves any more", async () => {
    const server = await TestServer.start(silence);
    const client = build(server, { ...FAST, uploadSilenceMs: 50, attempts: 1 });

    await expect(client.sendMessage("conv_1", { text: "", files: FILES, key: "k1" })).rejects.toThrow(Unreachable);
  });
});
