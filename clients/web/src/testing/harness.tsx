/** A page around a component under test: a session whose server answers as the test says, and everything that is asked. */
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { render } from "@testing-library/react";
import type { RenderResult } from "@testing-library/react";
import type { JSX, ReactNode } from "react";
import { vi } from "vitest";

import { EverturnClient } from "../api";
import type { MessageLimits } from "../api";
import { ArtifactsContext } from "../artifacts/context";
import type { ArtifactTarget } from "../artifacts/context";
import { SessionContext } from "../session/context";
import { AnnouncerProvider } from "../ui/announcer";

export interface Asked {
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
  asked: Asked[];
  opened: ArtifactTarget[];
  queries: QueryClient;
}

/** What a server accepts unless it is set otherwise. */
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

/** `answer` is given what is asked, with the path below the project's. */
export function renderInPage(children: ReactNode, answer: (asked: Asked) => Answer | Promise<Answer> = () => ({ status: 200, body: {} })): Page {
  const asked: Asked[] = [];
  const opened: ArtifactTarget[] = [];
  const queries = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  const backend = new EverturnClient({
    tenant: "default",
    project: "default",
    fetch: async (address, init) => {
      const call = readCall(address, init);
      // Every page asks for these, whatever a test is about.
      if (call.path.startsWith("/limits/")) return Response.json(LIMITS);
      asked.push(call);
      const { status, body } = await answer(call);
      return new Response(JSON.stringify(body), { status, headers: { "content-type": "application/json" } });
    },
  });
  const session = { backend, scope: { tenant: "default", project: "default" }, isSignedIn: false, keptFiles: new Map<string, readonly File[]>(), signOut: doNothing, expire: doNothing };
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
  return { ...rendered, asked, opened, queries };
}

/** From now on the page is on a screen that is touched, until mocks are restored. */
export function touchScreen(): void {
  vi.spyOn(window, "matchMedia").mockImplementation((media) => Object.assign(new EventTarget(), { media, matches: media === "(pointer: coarse)", onchange: null, addListener: () => undefined, removeListener: () => undefined }));
}

export function refuse(status: number, detail: string): Answer {
  return { status, body: { type: "urn:everturn:problem:test", title: "Refused", status, detail } };
}

function readCall(address: RequestInfo | URL, init?: RequestInit): Asked {
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
  // No test of these components signs out.
}
