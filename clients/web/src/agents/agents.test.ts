import { beforeEach, expect, test } from "vitest";

import { buildAgent } from "../testing/builders";
import { chooseAgent, findAgent, isIncomplete, loadChoice, makeMark, saveChoice, searchAgents } from "./agents";

const everturn = buildAgent({ id: "everturn", title: "Everturn", is_default: true });
const support = buildAgent({ description: "Answers questions about Bücher." });
const broken = buildAgent({ id: "broken", title: "Broken", is_ready: false });
const agents = [everturn, broken, support];
const scope = { tenant: "acme", project: "one" };

beforeEach(() => { localStorage.clear(); });

test("the choice falls back to the default agent, then to the first that can run", () => {
  expect(chooseAgent(agents, "support")).toBe(support);
  expect(chooseAgent(agents, null)).toBe(everturn);
  expect(chooseAgent(agents, "gone")).toBe(everturn);
  expect(chooseAgent(agents, "broken")).toBe(everturn);
  expect(chooseAgent([broken, support], null)).toBe(support);
  expect(chooseAgent([broken], null)).toBeUndefined();
});

test("a conversation without an agent, or with `default`, has the default agent", () => {
  expect(findAgent(agents)).toBe(everturn);
  expect(findAgent(agents, "default")).toBe(everturn);
  expect(findAgent(agents, "broken")).toBe(broken);
  expect(findAgent(agents, "gone")).toBeUndefined();
});

test("a search finds all words in any order, without case and accents", () => {
  expect(searchAgents(agents, " BUCHER sup ")).toEqual([support]);
  expect(searchAgents(agents, "everturn")).toEqual([everturn]);
  expect(searchAgents(agents, "   ")).toEqual(agents);
  expect(searchAgents(agents, "sup everturn")).toEqual([]);
});

test("the mark is one emoji, two letters of the icon, or the initials of the title", () => {
  const marks: readonly (readonly [icon: string, title: string, mark: string])[] = [
    ["🛟", "Support", "🛟"],
    ["👨‍👩‍👧‍👦 family", "Family", "👨‍👩‍👧‍👦"],
    ["🇺🇦", "Ukraine", "🇺🇦"],
    ["HR", "Human resources", "HR"],
    ["<img src=x>", "Hostile", "<i"],
    ["", "data analyst of all", "DA"],
    ["", "Spoke & (Chain)", "SC"],
    ["\u202e\u200b ", "Support", "S"],
    ["", "\u202e", ""],
    ["", "قانون العمل", "قا"],
  ];
  expect(marks.map(([icon, title]) => makeMark({ icon, title }))).toEqual(marks.map(([, , mark]) => mark));
});

test("the choice is kept for its project, except that of the default agent", () => {
  saveChoice(localStorage, scope, support);
  expect(loadChoice(localStorage, scope)).toBe("support");
  expect(loadChoice(localStorage, { tenant: "acme", project: "two" })).toBeNull();

  saveChoice(localStorage, scope, everturn);
  expect(localStorage).toHaveLength(0);
});

test("a starter that ends with an ellipsis or a colon is incomplete", () => {
  expect(["Write a reply to:", "Translate …", "Translate... "].map(isIncomplete)).toEqual([true, true, true]);
  expect(["Where is my order?", "Translate this.", "12:30"].map(isIncomplete)).toEqual([false, false, false]);
});
