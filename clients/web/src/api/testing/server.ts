// A real HTTP server for tests of the client library: it answers what a test tells it to, and notes what it was asked.
import { type IncomingMessage, type ServerResponse, createServer } from "node:http";
import type { AddressInfo } from "node:net";

import { afterEach } from "vitest";

export interface Asked {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
}

export type Reply = (response: ServerResponse, asked: Asked) => void;

const servers: TestServer[] = [];

afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()));
});

/** Replies in order; the last one is given again and again. */
export class TestServer {
  readonly asked: Asked[] = [];
  private readonly replies: readonly Reply[];
  private readonly server = createServer((request, response) => { this.serve(request, response); });

  private constructor(replies: readonly Reply[]) {
    this.replies = replies;
  }

  static async start(...replies: readonly Reply[]): Promise<TestServer> {
    const made = new TestServer(replies);
    servers.push(made);
    await new Promise<void>((resolve) => { made.server.listen(0, "127.0.0.1", resolve); });
    return made;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  close(): Promise<void> {
    this.server.closeAllConnections();
    return new Promise((resolve) => { this.server.close(() => { resolve(); }); });
  }

  private serve(request: IncomingMessage, response: ServerResponse): void {
    const parts: Buffer[] = [];
    request.on("data", (part: Buffer) => parts.push(part));
    request.on("end", () => {
      // Pages of another origin, as tests are, ask first.
      response.setHeader("Access-Control-Allow-Origin", "*");
      response.setHeader("Access-Control-Allow-Headers", "*, Authorization");
      response.setHeader("Access-Control-Expose-Headers", "*");
      if (request.method === "OPTIONS") {
        response.end();
        return;
      }
      const { method = "", url = "", headers } = request;
      const asked = { method, url, headers, body: Buffer.concat(parts).toString() };
      this.asked.push(asked);
      this.replies[Math.min(this.asked.length, this.replies.length) - 1]?.(response, asked);
    });
  }
}

export function json(body: unknown, status = 200, headers: Readonly<Record<string, string>> = {}): Reply {
  return (response) => {
    response.writeHead(status, { "Content-Type": "application/json", ...headers });
    response.end(JSON.stringify(body));
  };
}

export function problem(status: number, more: object = {}, headers: Readonly<Record<string, string>> = {}): Reply {
  const told = { type: "urn:everturn:problem:example", title: "It can't be", status, detail: "For a reason." };
  return json({ ...told, ...more }, status, { "Content-Type": "application/problem+json", ...headers });
}

/** The connection breaks without an answer. */
export const breakOff: Reply = (response) => { response.destroy(); };

/** No answer ever. */
export const silence: Reply = () => undefined;
