// @vitest-environment node
import { expect, test } from "vitest";

import type { FileView } from "../api";
import { NO_REFERENCES, buildReferences, findFile } from "./references";

const file = (artifact_id: string, filename: string): FileView => ({
  artifact_id,
  filename,
  ref: "fi:x",
  rn: "ef:x",
  mime: "image/png",
  size: 1,
  visibility: "external",
  url: `/files/default/default/${artifact_id}`,
  verdict: "clean",
});

test("a file is found by its id or its name; the last one of that name wins", () => {
  const references = buildReferences([], [file("a", "chart.png"), file("b", "chart.png")]);

  expect(findFile(references.files, { artifactId: "a" })?.artifact_id).toBe("a");
  expect(findFile(references.files, { name: "chart.png" })?.artifact_id).toBe("b");
  expect(findFile(references.files, { name: "other.png" })).toBeUndefined();
});

test("a citation is found however its address is encoded", () => {
  const { citations } = buildReferences([{ sid: 3, title: "T", url: "https://example.org/a b", source_type: "web" }], []);

  expect(citations.get("https://example.org/a b")?.sid).toBe(3);
});

test("turns without files and sources share one empty value", () => {
  expect(buildReferences([], [])).toBe(NO_REFERENCES);
});
