// A real HTTP server for tests of the API client: gives scripted responses and records the requests.
import { type IncomingMessage, type ServerResponse, createServer } from "node:http";
import type { AddressInfo } from "node:net";

import { afterEach } from "vitest";

export interface RecordedRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
}

export type Reply = (response: ServerResponse, requests: RecordedRequest) => void;

const servers: TestServer[] = [];

afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()));
});

/** Returns the replies in order and repeats the last one. */
export class TestServer {
  readonly requests: RecordedRequest[] = [];
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
      // Tests run on another origin, so browsers send a preflight request.
      response.setHeader("Access-Control-Allow-Origin", "*");
      response.setHeader("Access-Control-Allow-Headers", "*, Authorization");
      response.setHeader("Access-Control-Expose-Headers", "*");
      if (request.method === "OPTIONS") {
        response.end();
        return;
      }
      const { method = "", url = "", headers } = request;
      const requests = { method, url, headers, body: Buffer.concat(parts).toString() };
      this.requests.push(requests);
      this.replies[Math.min(this.requests.length, this.replies.length) - 1]?.(response, requests);
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
  const base = { type: "urn:everturn:problem:example", title: "It can't be", status, detail: "For a reason." };
  return json({ ...base, ...more }, status, { "Content-Type": "application/problem+json", ...headers });
}

/** Drops the connection without a response. */
export const breakOff: Reply = (response) => { response.destroy(); };

/** Never responds. */
export const silence: Reply = () => undefined;
