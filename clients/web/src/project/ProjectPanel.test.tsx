import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";

import type { Answer, RecordedRequest } from "../testing/harness";
import { problemResponse, renderInPage } from "../testing/harness";
import ProjectPanel from "./ProjectPanel";

const [FIRST, SECOND] = ["a".repeat(40), "b".repeat(40)];
const HOSTILE = "<img src=x>\u202e.py";
const COMMITS = [
  { commit: SECOND, turn_id: "turn_2", subject: "Change it", accepted_at: "2026-03-01T12:00:00.000Z", files: [{ path: "src/a.py", change: "modified", size: 9 }], more_files: 1 },
  { commit: FIRST, turn_id: "turn_1", subject: "Write it", accepted_at: "2026-03-01T11:00:00.000Z", files: [{ path: "src/a.py", change: "added", size: 4 }], more_files: 0 },
];
const DIFF = {
  from_commit: FIRST,
  to_commit: SECOND,
  files: [
    { path: "logo.png", change: "added", binary: true },
    { path: "src/a.py", change: "modified", added_lines: 1, removed_lines: 1, binary: false },
  ],
  diff: "diff --git a/logo.png b/logo.png\ndiff --git a/src/a.py b/src/a.py\n@@ -1 +1 @@\n-old\n+new\n",
};

function serve({ path }: RecordedRequest): Answer {
  const { pathname, searchParams } = new URL(path, "http://test.invalid");
  const what = pathname.replace("/conv_1/workspace/", "");
  if (what === "commits") return { status: 200, body: searchParams.has("before") ? { commits: COMMITS.slice(1), next_before: null } : { commits: COMMITS.slice(0, 1), next_before: "turn_2" } };
  if (what === "tree" && searchParams.get("folder") === "src") return { status: 200, body: { commit: SECOND, folder: "src", entries: [{ name: "a.py", kind: "file", size: 9 }], more_entries: 0 } };
  if (what === "tree") return { status: 200, body: { commit: SECOND, folder: "", entries: [{ name: HOSTILE, kind: "file", size: 2_000_000 }, { name: "src", kind: "folder", size: null }], more_entries: 0 } };
  if (what === "file") return { status: 200, body: "content" };
  return { status: 200, body: DIFF };
}

function show(answer: (request: RecordedRequest) => Answer = serve): { requests: RecordedRequest[] } {
  return renderInPage(<ProjectPanel conversationId="conv_1" turns={[]} onClose={vi.fn()} />, answer);
}

async function openTab(name: string): Promise<void> {
  await userEvent.click(await screen.findByRole("tab", { name }));
}

test("commits come page by page, and a chosen one shows its changes", async () => {
  const { requests } = show();
  await userEvent.click(await screen.findByRole("button", { name: "Load more" }));
  const first = await screen.findByRole("button", { name: /Write it/ });
  expect(screen.getByRole("button", { name: /Change it/ })).toHaveTextContent("2 files");
  expect(screen.queryByRole("button", { name: "Load more" })).toBeNull();

  await userEvent.click(first);

  expect(await screen.findByRole("tab", { name: "Changes" })).toHaveFocus();
  const changed = await screen.findByRole("region", { name: "Changes of src/a.py" });
  expect(within(changed).getByRole("row", { name: /Removed old/ })).toBeInTheDocument();
  expect(within(changed).getByRole("row", { name: /Added new/ })).toBeInTheDocument();
  expect(screen.getByText(/This is a binary/)).toBeInTheDocument();
  expect(requests.at(-1)?.path).toBe(`/conv_1/workspace/diff?to=${FIRST}`);
});

test("folders load when they are opened, and the focus follows a file and back", async () => {
  const { requests } = show();
  await openTab("Files");
  await userEvent.click(await screen.findByRole("button", { name: "src" }));
  const entry = await screen.findByRole("button", { name: /a\.py 9 bytes/ });

  await userEvent.click(entry);

  expect(screen.getByRole("heading", { name: "src/a.py" })).toHaveFocus();
  expect(await screen.findByText('"content"')).toBeInTheDocument();
  expect(requests.at(-1)?.path).toBe(`/conv_1/workspace/file?at=${SECOND}&path=src%2Fa.py`);
  await userEvent.click(screen.getByRole("button", { name: "Back to all files" }));
  await waitFor(() => { expect(screen.getByRole("button", { name: /a\.py 9 bytes/ })).toHaveFocus(); });
});

test("a large file is offered as a download under the name it has", async () => {
  const { requests } = show();
  await openTab("Files");
  await userEvent.click(await screen.findByRole("button", { name: /img src/ }));

  expect(await screen.findByText(/too large to show/)).toBeInTheDocument();
  expect(screen.getByRole("heading", { name: "<img src=x>\\u{202e}.py" })).toBeInTheDocument();
  expect(document.querySelector("img")).toBeNull();
  expect(requests.some(({ path }) => path.includes("/file?"))).toBe(false);
});

test("changes that are too long are loaded file by file", async () => {
  const { requests } = show((request) => (/diff\?to=[^&]*$/.test(request.path) ? problemResponse(422, "Too long.") : serve(request)));
  await openTab("Changes");
  expect(await screen.findByText(/too long to show together/)).toBeInTheDocument();
  expect(screen.getByText(/1 more file can’t be shown/)).toBeInTheDocument();

  await userEvent.click(screen.getByRole("button", { name: /src\/a\.py/ }));

  expect(await screen.findByRole("region", { name: "Changes of src/a.py" })).toBeInTheDocument();
  expect(requests.at(-1)?.path).toBe(`/conv_1/workspace/diff?to=${SECOND}&path=src%2Fa.py`);
});

test("the command to clone names this server", async () => {
  show();
  await openTab("Clone");

  expect(await screen.findByRole("figure", { name: "Code, bash" })).toHaveTextContent(`git clone ${window.location.origin}/conversations/default/default/conv_1/workspace.git`);
});

test("commits that can't be loaded are explained", async () => {
  show(() => problemResponse(422, "This history can't be read."));
  expect(await screen.findByRole("alert")).toHaveTextContent("This history can't be read.");
});

test("a conversation without files has an empty project", async () => {
  show(() => ({ status: 200, body: { commits: [], next_before: null } }));
  expect(await screen.findByText(/has not written any files yet/)).toBeInTheDocument();
});
