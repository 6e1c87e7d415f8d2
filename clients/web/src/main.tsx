import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { App } from "./shell/App";
import "./shell/base.css";
import "./shell/tokens.css";

const root = document.getElementById("root");
if (root === null) throw new Error("The page has no element to draw into.");
createRoot(root).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
