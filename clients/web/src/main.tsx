import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { EmbeddedApp } from "./embed/EmbeddedApp";
import { openEmbedded, readTicket } from "./embed/embedding";
import { replaceStorage } from "./embed/memoryStorage";
import { App } from "./shell/App";
import "./shell/base.css";
import "./shell/tokens.css";

const root = document.getElementById("root");
if (root === null) throw new Error("The page has no element to draw into.");
const ticket = readTicket(window.location);
// Used up here, once, and then no longer in the address.
const opening = ticket === null ? null : openEmbedded(ticket, [...((window.location.ancestorOrigins as DOMStringList | undefined) ?? [])]);
if (opening !== null) {
  window.history.replaceState(null, "", window.location.pathname);
  replaceStorage(window);
}
createRoot(root).render(
  <StrictMode>
    {opening === null ? <App /> : <EmbeddedApp opening={opening} />}
  </StrictMode>,
);
