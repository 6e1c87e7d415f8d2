/** Renders a component in a page with a session whose server is scripted by the test, and records all requests. */
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { render } from "@testing-library/react";
import type { RenderResult } from "@testing-library/react";
import type { JSX, ReactNode } from "react";
import { vi } from "vitest";

import { EverturnClient } from "../api";
import type { MessageLimits } from "../api";
import { ArtifactsContext } from "../files/artifacts";
import type { ArtifactTarget } from "../files/artifacts";
import { SessionContext } from "../session/context";
import { AnnouncerProvider } from "../ui/announcer";

export interface RecordedRequest {
  method: string;
  path: string;
  body: unknown;
  key: string | null;
}

export interface Answer {
  status: number;
  body: unknown;
}

export interface Page extends RenderResult {
  requests: RecordedRequest[];
  opened: ArtifactTarget[];
  queries: QueryClient;
}

/** The default limits of the server. */
export const LIMITS: MessageLimits = {
  message_bytes: 25_000_000, json_bytes: 8_000_000, text_chars: 1_000_000, files: 20, image_bytes: 5_000_000, document_bytes: 10_000_000, text_bytes: 10_000_000,
  image_pixels: 100_000_000,
  file_types: [
    { family: "image", media_type: "image/png", extensions: [".png"], max_bytes: 5_000_000 },
    { family: "document", media_type: "application/pdf", extensions: [".pdf"], max_bytes: 10_000_000 },
    { family: "text", media_type: "text/plain", extensions: [], max_bytes: 10_000_000 },
  ],
  zeros_in_text: ["", ".txt"],
  pending_signals: 64,
  event_streams: 32,
  running_turns: 3,
};
const PREFIX = "/conversations/default/default";

/** `answer` receives each request, with the path under the project's. */
export function renderInPage(children: ReactNode, answer: (requests: RecordedRequest) => Answer | Promise<Answer> = () => ({ status: 200, body: {} })): Page {
  const requests: RecordedRequest[] = [];
  const opened: ArtifactTarget[] = [];
  const queries = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  const backend = new EverturnClient({
    tenant: "default",
    project: "default",
    fetch: async (address, init) => {
      const call = readCall(address, init);
      // Every page requests these, whatever a test is about.
      if (call.path.startsWith("/limits/")) return Response.json(LIMITS);
      requests.push(call);
      const { status, body } = await answer(call);
      return new Response(JSON.stringify(body), { status, headers: { "content-type": "application/json" } });
    },
  });
  const session = { backend, scope: { tenant: "default", project: "default" }, isSignedIn: false, unsentFiles: new Map<string, readonly File[]>(), signOut: doNothing, expire: doNothing };
  const artifacts = { open: (target: ArtifactTarget): void => { opened.push(target); } };
  const wrapper = ({ children: inner }: { children: ReactNode }): JSX.Element => (
    <AnnouncerProvider>
      <SessionContext value={session}>
        <QueryClientProvider client={queries}>
          <ArtifactsContext value={artifacts}>{inner}</ArtifactsContext>
        </QueryClientProvider>
      </SessionContext>
    </AnnouncerProvider>
  );
  const rendered = render(children, { wrapper });
  return { ...rendered, requests, opened, queries };
}

/** Simulates a touch screen until mocks are restored. */
export function touchScreen(): void {
  vi.spyOn(window, "matchMedia").mockImplementation((media) => Object.assign(new EventTarget(), { media, matches: media === "(pointer: coarse)", onchange: null, addListener: () => undefined, removeListener: () => undefined }));
}

export function problemResponse(status: number, detail: string): Answer {
  return { status, body: { type: "urn:everturn:problem:test", title: "Refused", status, detail } };
}

function readCall(address: RequestInfo | URL, init?: RequestInit): RecordedRequest {
  const url = new URL(address instanceof Request ? address.url : address, "http://test.invalid");
  const body: unknown = typeof init?.body === "string" ? JSON.parse(init.body) : null;
  return {
    method: init?.method ?? "GET",
    path: (url.pathname + url.search).replace(PREFIX, ""),
    body,
    key: new Headers(init?.headers).get("idempotency-key"),
  };
}

function doNothing(): void {
  // These tests do not sign out.
}
