// @vitest-environment node
import { expect, test } from "vitest";

import { ProblemError } from "../api";
import { MAX_FILES, addFiles, checkLength, findRefusals, markRefused, namePasted, sumBytes } from "./attachments";

const file = (name: string, text = "x"): File => new File([text], name, { type: "text/csv", lastModified: 1 });
let count = 0;
const makeId = (): string => `id_${(count += 1)}`;

test("a file that is chosen twice is attached once", () => {
  const first = addFiles([], [file("a.csv")], makeId);

  expect(addFiles(first.attachments, [file("a.csv"), file("b.csv")], makeId).attachments.map(({ file: { name } }) => name)).toEqual(["a.csv", "b.csv"]);
});

test("what is more than a message takes is left out and named", () => {
  const many = Array.from({ length: MAX_FILES + 1 }, (_, at) => file(`${at}.csv`));
  const { attachments, problem } = addFiles([], many, makeId);

  expect(attachments).toHaveLength(MAX_FILES);
  expect(problem).toContain("20.csv");
});

test("a refusal stands at the file that the server names by its place, whatever it is called", () => {
  const { attachments } = addFiles([], [file("a.csv"), file("it's.csv")], makeId);
  const problem = { type: "urn:everturn:problem:unprocessable", title: "No", status: 422, detail: "One file is refused." };
  const refused = (field: string): ProblemError => new ProblemError({ ...problem, errors: [{ field, message: "It is infected." }] });
  const mark = (error: unknown): readonly string[] =>
    markRefused(attachments, findRefusals(error, attachments.map((each) => each.file))).map(({ refusal }) => refusal);

  expect(mark(refused("files.1"))).toEqual(["", "It is infected."]);
  for (const other of [refused("files.2"), refused("body.text"), refused("files"), new Error("files.1")]) expect(mark(other)).toEqual(["", ""]);
});

test("pasted pictures get names of their own, other files keep theirs", () => {
  expect(namePasted(file("image.png"), 2).name).toBe("pasted-2.png");
  expect(namePasted(file("report.pdf"), 2).name).toBe("report.pdf");
});

test("the size of a message is that of all its files", () => {
  expect(sumBytes(addFiles([], [file("a", "12"), file("b", "345")], makeId).attachments)).toBe(5);
});

const LIMITS = { message_bytes: 4_000, json_bytes: 8_000_000, text_chars: 10, files: 3, image_bytes: 100, document_bytes: 1_000, text_bytes: 2_000, image_pixels: 100, file_types: [], pending_signals: 64, event_streams: 32 };
const sized = (name: string, bytes: number, type = "text/csv"): File => new File(["x".repeat(bytes)], name, { type });

test("what the server would refuse for its size is named before anything is sent", () => {
  const { attachments, problem } = addFiles([], [sized("a.png", 101, "image/png"), sized("b.pdf", 1_001, "application/pdf"), sized("c.csv", 1_999), sized("d.csv", 1_900), sized("e.csv", 0)], makeId, LIMITS);

  expect(attachments.map(({ file: { name } }) => name)).toEqual(["c.csv"]);
  expect(problem).toBe("a.png is too large: 101 bytes, the limit is 100 bytes. b.pdf is too large: 1.0 kB, the limit is 1.0 kB. d.csv does not fit: all files together may have 4.0 kB. e.csv is empty.");
});

test("a text that is too long is said to be, counted as the server counts", () => {
  expect(checkLength("x".repeat(11), LIMITS)).toContain("up to 10 characters");
  expect(checkLength("😀".repeat(10), LIMITS)).toBe("");
  expect(checkLength("x".repeat(11), null)).toBe("");
});
