// @vitest-environment node
import { expect, test } from "vitest";

import { ProblemError } from "../api";
import { MAX_FILES, addFiles, checkLength, checkType, findRefusals, markRefused, namePasted, sumBytes } from "./attachments";

const file = (name: string, text = "x"): File => new File([text], name, { type: "text/csv", lastModified: 1 });
let count = 0;
const makeId = (): string => `id_${(count += 1)}`;

test("a file that is chosen twice is attached once", () => {
  const first = addFiles([], [file("a.csv")], makeId);

  expect(addFiles(first.attachments, [file("a.csv"), file("b.csv")], makeId).attachments.map(({ file: { name } }) => name)).toEqual(["a.csv", "b.csv"]);
});

test("files over the limit are left out and named", () => {
  const many = Array.from({ length: MAX_FILES + 1 }, (_, at) => file(`${at}.csv`));
  const { attachments, problem } = addFiles([], many, makeId);

  expect(attachments).toHaveLength(MAX_FILES);
  expect(problem).toContain("20.csv");
});

test("a rejection is shown at the file at that position, whatever its name", () => {
  const { attachments } = addFiles([], [file("a.csv"), file("it's.csv")], makeId);
  const problem = { type: "urn:everturn:problem:unprocessable", title: "No", status: 422, detail: "One file is refused." };
  const refused = (field: string): ProblemError => new ProblemError({ ...problem, errors: [{ field, message: "It is infected." }] });
  const mark = (error: unknown): readonly string[] =>
    markRefused(attachments, findRefusals(error, attachments.map((each) => each.file))).map(({ refusal }) => refusal);

  expect(mark(refused("files.1"))).toEqual(["", "It is infected."]);
  for (const other of [refused("files.2"), refused("body.text"), refused("files"), new Error("files.1")]) expect(mark(other)).toEqual(["", ""]);
});

test("pasted images get distinct names, other files keep theirs", () => {
  expect(namePasted(file("image.png"), 2).name).toBe("pasted-2.png");
  expect(namePasted(file("report.pdf"), 2).name).toBe("report.pdf");
});

test("the size of a message is the sum of its files", () => {
  expect(sumBytes(addFiles([], [file("a", "12"), file("b", "345")], makeId).attachments)).toBe(5);
});

const LIMITS = {
  message_bytes: 4_000, json_bytes: 8_000_000, text_chars: 10, files: 3, image_bytes: 100, document_bytes: 1_000, text_bytes: 2_000, image_pixels: 100,
  file_types: [
    { family: "image" as const, media_type: "image/png", extensions: [".png"], max_bytes: 100 },
    { family: "document" as const, media_type: "application/pdf", extensions: [".pdf"], max_bytes: 1_000 },
    { family: "text" as const, media_type: "text/plain", extensions: [], max_bytes: 2_000 },
  ],
  zeros_in_text: ["", ".txt"],
  pending_signals: 64,
  event_streams: 32,
};
const sized = (name: string, bytes: number, type = "text/csv"): File => new File(["x".repeat(bytes)], name, { type });

test("files that the server would reject for their size are named before sending", () => {
  const { attachments, problem } = addFiles([], [sized("a.png", 101, "image/png"), sized("b.pdf", 1_001, "application/pdf"), sized("c.csv", 1_999), sized("d.csv", 1_900), sized("e.csv", 0)], makeId, LIMITS);

  expect(attachments.map(({ file: { name } }) => name)).toEqual(["c.csv"]);
  expect(problem).toBe("a.png is too large (101 bytes). The limit is 100 bytes. b.pdf is too large (1.0 kB). The limit is 1.0 kB. d.csv was not attached: all files together can be at most 4.0 kB. e.csv is empty.");
});

test("a text that is too long is reported, counted as the server counts", () => {
  expect(checkLength("x".repeat(11), LIMITS)).toContain("up to 10 characters");
  expect(checkLength("😀".repeat(10), LIMITS)).toBe("");
  expect(checkLength("x".repeat(11), null)).toBe("");
});

test("a file that is neither text nor a supported format is rejected before sending", async () => {
  const named = (name: string, text: string): Promise<string> => checkType(new File([text], name), LIMITS);

  expect(await named("setup.exe", "MZ\0\0")).toBe("setup.exe can’t be attached. Supported formats: text, png, pdf.");
  expect(await named("movie.mp4", "\0\0\0 ftyp")).toContain("movie.mp4 can’t be attached");
  expect(await Promise.all([named("a.PNG", "\0"), named("notes", "\0a"), named("app.py", "import os"), named("late.bin", `${"x".repeat(65_536)}\0`), named("empty.bin", "")])).toEqual(["", "", "", "", ""]);
  expect(await checkType(new File([new Uint8Array([0xff, 0xfe, 65, 0])], "wide.sql"), LIMITS)).toBe("");
});
