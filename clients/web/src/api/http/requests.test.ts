// @vitest-environment node
import { describe, expect, it } from "vitest";

import { EverturnClient } from "../client";
import { type Reply, TestServer, breakOff, json, problem, silence } from "../testing/server";
import { TIMINGS } from "./backoff";
import { InvalidResponse, ProblemError, Unreachable } from "./errors";

const FAST = { ...TIMINGS, answerMs: 2_000, firstDelayMs: 1, maxDelayMs: 2 };
const ACCEPTED = { conversation_id: "conv_1", turn_id: null, receipt: { state: "queued" }, events_url: "/" };

async function serve(...replies: readonly Reply[]): Promise<{ server: TestServer; client: EverturnClient }> {
  const server = await TestServer.start(...replies);
  const options = { baseUrl: server.url, tenant: "acme", project: "one/two", token: () => "secret", timings: FAST };
  return { server, client: new EverturnClient(options) };
}

const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

describe("a call", () => {
  it("sends the credential, encodes path segments and drops nulls", async () => {
    const { server, client } = await serve(json({ items: [], next_cursor: null }));

    const page = await client.listConversations({ search: "a&b", isArchived: true });

    expect(page).toEqual({ items: [] });
    expect(server.requests[0]?.url).toBe("/conversations/acme/one%2Ftwo?q=a%26b&archived=true");
    expect(server.requests[0]?.headers.authorization).toBe("Bearer secret");
  });

  it("is retried with the same key until the server responds", async () => {
    const { server, client } = await serve(breakOff, problem(503, {}, { "Retry-After": "0" }), problem(409), json(ACCEPTED, 202));

    const accepted = await client.sendMessage("new", { text: "Hi", key: "k1" });

    expect(accepted).toEqual({ conversation_id: "conv_1", receipt: { state: "queued" }, events_url: "/" });
    expect(server.requests.map((requests) => requests.headers["idempotency-key"])).toEqual(["k1", "k1", "k1", "k1"]);
    expect(new Set(server.requests.map((requests) => requests.body))).toEqual(new Set([JSON.stringify({ text: "Hi", time_zone: ZONE })]));
  });

  it("is never retried if it changes something and has no key", async () => {
    const { server, client } = await serve(breakOff, json({}));

    await expect(client.patchConversation("conv_1", { title: "One" })).rejects.toThrow(Unreachable);
    expect(server.requests).toHaveLength(1);
  });

  it("fails at once if the server asks for a longer wait than a user would accept", async () => {
    const { server, client } = await serve(problem(429, {}, { "Retry-After": "3600" }));

    const refusal = await client.getTurn("conv_1", "turn_1").catch((error: unknown) => error);

    expect(refusal).toMatchObject({ status: 429, retryAfterS: 3600 });
    expect(server.requests).toHaveLength(1);
  });

  it("gives up after the last attempt", async () => {
    const { server, client } = await serve(breakOff);

    await expect(client.getTurn("conv_1", "turn_1")).rejects.toThrow(Unreachable);
    expect(server.requests).toHaveLength(FAST.attempts);
  });

  it("reports a rejection with its fields", async () => {
    const { client } = await serve(problem(422, { errors: [{ field: "title", message: "It is too long." }] }));

    const refusal = await client.patchConversation("conv_1", { title: "x" }).catch((error: unknown) => error);

    expect(refusal).toBeInstanceOf(ProblemError);
    expect(refusal).toMatchObject({
      type: "urn:everturn:problem:example",
      status: 422,
      fields: [{ field: "title", message: "It is too long." }],
      message: "It can't be. For a reason. title: It is too long.",
    });
  });

  it("reports a proxy's rejection, and a response that is not JSON", async () => {
    const { client } = await serve(
      (response) => response.writeHead(404).end("<h1>nginx</h1>"),
      (response) => response.end("<h1>nginx</h1>"),
    );

    await expect(client.getTurn("conv_1", "turn_1")).rejects.toMatchObject({ status: 404, type: "about:blank" });
    await expect(client.getTurn("conv_1", "turn_1")).rejects.toThrow(InvalidResponse);
  });

  it("ends when its caller aborts it", async () => {
    const { client } = await serve(silence);
    const abort = new AbortController();
    const asking = client.getTurn("conv_1", "turn_1", abort.signal);

    abort.abort();

    await expect(asking).rejects.toMatchObject({ name: "AbortError" });
  });

  it("is unreachable when no response arrives in time", async () => {
    const server = await TestServer.start(silence);
    const timings = { ...FAST, answerMs: 50, attempts: 1 };
    const client = new EverturnClient({ baseUrl: server.url, tenant: "a", project: "b", timings });

    await expect(client.getTurn("conv_1", "turn_1")).rejects.toThrow(Unreachable);
  });

  it("is unreachable when a file is not complete in time, unless its caller aborted it", async () => {
    const server = await TestServer.start((response) => response.writeHead(200, { "Content-Type": "text/csv" }).write("a,"));
    const timings = { ...FAST, contentMs: 50 };
    const abort = new AbortController();
    abort.abort();

    const impatient = new EverturnClient({ baseUrl: server.url, tenant: "a", project: "b", timings });
    await expect(impatient.loadFile({ url: "/files/a/b/art_1" })).rejects.toThrow(Unreachable);
    await expect(impatient.loadFile({ url: "/files/a/b/art_1" }, abort.signal)).rejects.toMatchObject({ name: "AbortError" });
  });

  it("keeps null in foreign content", async () => {
    const { client } = await serve(json({ turn: { params: { to: null }, error: null } }));

    expect(await client.getTurn("conv_1", "turn_1")).toEqual({ turn: { params: { to: null } } });
  });

  it("returns the content of a file with its media type", async () => {
    const { client } = await serve((response) => response.writeHead(200, { "Content-Type": "text/csv" }).end("a,b\n"));

    const content = await client.loadFile({ url: "/files/a/b/art_1" });

    expect([content.type, await content.text()]).toEqual(["text/csv", "a,b\n"]);
  });
});
