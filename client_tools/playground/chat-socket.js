// A client of the chat socket, whole: it shows the text of each turn while it grows.
const [form, key, message, turns] = ["form", "key", "message", "turns"]
  .map((id) => document.getElementById(id));
let socket, session;

async function connect() {
  const headers = { "content-type": "application/json" };
  if (key.value) headers.authorization = `Bearer ${key.value}`;
  const made = () => fetch("/api/sessions", { method: "POST", headers, body: "{}" });
  session ??= (await (await made()).json()).session_id;
  socket = new WebSocket("/ws");
  socket.onmessage = ({ data }) => hear(JSON.parse(data));
  socket.onclose = ({ reason }) => { socket = show("socket", reason || "closed"); };
  await new Promise((resolve) => { socket.onopen = resolve; });
  if (key.value) emit("auth", { token: key.value });
  emit("session:subscribe", { session_id: session });
}

const emit = (event, data) => socket.send(JSON.stringify({ event, data }));
const textOf = ({ blocks }) => blocks.map(({ type, content }) => type === "text" ? content : "");

function hear({ event, data }) {
  if (event === "turn:start" || event === "turn:end") show(data.turn_id, textOf(data).join(""));
  if (event === "turn:patch" && data.data.type === "text") {
    line(data.turn_id).textContent += data.data.text_delta;
  }
  if (event === "system:error") show("error", data.message);
}

function show(id, text) { line(id).textContent = text; }

function line(id) {
  const shown = document.getElementById(id) ?? document.createElement("p");
  shown.id = id;
  if (!shown.parentNode) turns.append(shown);
  return shown;
}

form.onsubmit = async (event) => {
  event.preventDefault();
  const text = message.value;
  message.value = "";
  if (!socket) await connect();
  emit("chat:send", { session_id: session, message: text });
};
