// The official client: connects, follows, sends a message with a file, loses its connection, and goes on.
import { io } from "socket.io-client";

const [url, conversation] = process.argv.slice(2);
const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");
const socket = io(url, { transports: ["websocket"], reconnectionDelay: 50, reconnectionDelayMax: 100 });
let after;

socket.on("connect_error", (error) => say({ connect_error: error.data ?? error.message }));
socket.on("disconnect", (reason) => say({ disconnected: reason }));
socket.on("session_info", (info) => say({ session_info: info }));
for (const name of ["ready", "stream_snapshot", "chat_delta"]) {
  socket.on(name, (event) => {
    after = event.id ?? event.data.state?.cursor ?? after;
    say({ event: name, id: event.id ?? null });
  });
}
socket.on("connect", async () => {
  say({ connected: await socket.emitWithAck("conv_subscribe", { conversation_id: conversation, after }) });
});

process.stdin.setEncoding("utf8");
let rest = "";
process.stdin.on("data", async (text) => {
  rest += text;
  const lines = rest.split("\n");
  rest = lines.pop();
  for (const line of lines) {
    const order = JSON.parse(line);
    if (order.send) say({ sent: await socket.emitWithAck("chat_message", withFile(order.send)) });
    if (order.cut) socket.io.engine.close();
    if (order.namespace) {
      const other = socket.io.socket(order.namespace);
      other.on("connect_error", (error) => say({ refused: error.data }));
      other.connect();
    }
  }
});
process.stdin.on("end", () => socket.disconnect());

function withFile(message) {
  const files = message.files.map((file) => ({ ...file, data: Buffer.from(file.data) }));
  return { ...message, files };
}
