// Generates src/api/generated/wire.ts from the OpenAPI schema of the ingress: `npm run make-types`. Fields that the
// server sends as null become optional, in REST and in events, because the client drops nulls when it reads a response.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import process from "node:process";
import { fileURLToPath, URL } from "node:url";
import openapiTS, { astToString } from "openapi-typescript";

const LIMIT_MS = 60_000;
const MAX_BYTES = 16 * 1024 * 1024;
const python = process.env["EVERTURN_PYTHON"] ?? fileURLToPath(new URL("../../../.venv/bin/python", import.meta.url));
const target = new URL("../src/api/generated/wire.ts", import.meta.url);

function mayBeNull(field) {
  return field.anyOf?.some((choice) => choice.type === "null") ?? false;
}

function leaveOutNull(field) {
  const { anyOf, ...rest } = field;
  delete rest.default;
  if (!mayBeNull(field)) return anyOf ? { ...rest, anyOf } : rest;
  const choices = anyOf.filter((choice) => choice.type !== "null");
  return { ...rest, ...(choices.length === 1 ? choices[0] : { anyOf: choices }) };
}

function leaveOutNulls([name, schema]) {
  // Requests may send null on purpose: a null reaction removes the feedback.
  const isSent = /(In|Patch)$/.test(name);
  if (isSent || !schema.properties || schema === calls.Problem) return [name, schema];
  const fields = Object.entries(schema.properties);
  const required = fields.filter(([, field]) => !mayBeNull(field)).map(([field]) => field);
  const properties = Object.fromEntries(fields.map(([field, each]) => [field, leaveOutNull(each)]));
  return [name, { ...schema, properties, required }];
}

const described = execFileSync(python, ["-P", "-m", "ingress", "describe"], { timeout: LIMIT_MS, maxBuffer: MAX_BYTES });
const { calls, events } = JSON.parse(described.toString());
const received = Object.fromEntries(Object.entries(calls).map(leaveOutNulls));
// An RFC 9457 problem has more fields than the problem that a turn failed with, but the same name.
const schemas = { ...received, ProblemDetails: calls.Problem, ...events };
const document = { openapi: "3.1.0", info: { title: "Everturn", version: "1" }, paths: {}, components: { schemas } };
// Each schema also gets an alias of its name, which src/api/types.ts exports.
const ast = await openapiTS(document, { immutable: true, defaultNonNullable: false, rootTypes: true, rootTypesNoSchemaPrefix: true });
const types = events.Event.oneOf.map(({ $ref }) => events[$ref.split("/").pop()].properties.type.const);
const turn = Object.entries(calls.TurnView.properties).filter(([, { default: value }]) => value !== undefined && value !== null);
const defaults = Object.fromEntries(turn.map(([field, { default: value }]) => [field, value]));
const body =
  `${astToString(ast)}/** All event types of this version. */\nexport const EVENT_TYPES = ${JSON.stringify(types)} as const;\n` +
  `/** The fields of a turn that has only begun. */\nexport const TURN_DEFAULTS = ${JSON.stringify(defaults)} as const;\n`;
const hash = (bytes) => createHash("sha256").update(bytes).digest("hex");
const head = `// Made by \`npm run make-types\`; never edited.\n// Schemas ${hash(described)}\n// Types ${hash(body)}\n`;
writeFileSync(fileURLToPath(target), head + body);
