import js from "@eslint/js";
import jsxA11y from "eslint-plugin-jsx-a11y";
import reactHooks from "eslint-plugin-react-hooks";
import { defineConfig, globalIgnores } from "eslint/config";
import tseslint from "typescript-eslint";

// A folder of src imports only folders to its left.
const LAYERS = [
  "api", "ui", "routing", "session", "agents", "files", "markdown", "search", "artifacts", "inspector", "project", "composer", "conversations", "turn", "thread", "shell",
];

/** Forbids imports of folders to the right. */
function layerRule(folder, at) {
  const above = LAYERS.slice(at + 1).join("|");
  const message = `${folder} may only import folders before it in LAYERS (eslint.config.js).`;
  return {
    files: [`src/${folder}/**`],
    ignores: ["**/*.test.{ts,tsx}"],
    rules: { "no-restricted-imports": ["error", { patterns: [{ regex: `^(\\.\\./)+(${above})(/|$)`, message }] }] },
  };
}

export default defineConfig(
  globalIgnores(["dist", "node_modules", "src/api/generated"]),
  js.configs.recommended,
  {
    files: ["**/*.{ts,tsx}"],
    extends: [
      tseslint.configs.strictTypeChecked,
      tseslint.configs.stylisticTypeChecked,
      reactHooks.configs.flat["recommended-latest"],
      jsxA11y.flatConfigs.strict,
    ],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      "max-depth": ["error", 4],
      "no-console": "error",
      "no-warning-comments": "error",
      "react-hooks/exhaustive-deps": "error",
      "@typescript-eslint/no-explicit-any": "error",
      // Index signatures are read like maps.
      "@typescript-eslint/dot-notation": "off",
      // In a default branch the types check the remaining cases.
      "@typescript-eslint/switch-exhaustiveness-check": ["error", { considerDefaultExhaustiveForUnions: true }],
      "@typescript-eslint/no-unused-vars": ["error", { ignoreRestSiblings: true }],
      "@typescript-eslint/consistent-type-imports": "error",
      "@typescript-eslint/consistent-type-definitions": ["error", "interface"],
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      // React allows async handlers, which report their errors in the state.
      "@typescript-eslint/no-misused-promises": ["error", { checksVoidReturn: { attributes: false } }],
      // Render text from the server as elements, never as HTML.
      "no-restricted-syntax": [
        "error",
        { selector: "JSXAttribute[name.name='dangerouslySetInnerHTML']", message: "Render text from the server as elements, never as HTML." },
        { selector: "AssignmentExpression[left.property.name=/^(innerHTML|outerHTML)$/]", message: "Render text from the server as elements, never as HTML." },
      ],
    },
  },
  {
    files: ["**/*.test.{ts,tsx}"],
    rules: { "@typescript-eslint/no-non-null-assertion": "off" },
  },
  ...LAYERS.slice(0, -1).map(layerRule),
);
