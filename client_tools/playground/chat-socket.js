// A client of the chat socket, whole: it shows the text of each turn while it grows.
/** @param {string} id */
const found = (id) => /** @type {HTMLInputElement} */ (document.getElementById(id));
const form = found("form"), key = found("key"), message = found("message"), turns = found("turns");
/** @type {WebSocket | null} */
let socket = null;
let session = "";

async function connect() {
  const headers = new Headers({ "content-type": "application/json" });
  if (key.value) headers.set("authorization", `Bearer ${key.value}`);
  const made = () => fetch("/api/sessions", { method: "POST", headers, body: "{}" });
  session ||= (await (await made()).json()).session_id;
  const opened = new WebSocket("/ws");
  opened.onmessage = ({ data }) => hear(JSON.parse(data));
  opened.onclose = ({ reason }) => { socket = null; line("socket").textContent = reason; };
  await new Promise((resolve) => { opened.onopen = resolve; });
  socket = opened;
  if (key.value) emit("auth", { token: key.value });
  emit("session:subscribe", { session_id: session });
}

/** @param {string} event @param {Record<string, unknown>} data */
function emit(event, data) { socket?.send(JSON.stringify({ event, data })); }

/** @param {{ event: string, data: any }} heard */
function hear({ event, data }) {
  if (event === "session:updated" && "rolled_back_to" in data) rollBack(data.rolled_back_to);
  if (event === "turn:start" || event === "turn:end") {
    const isAgents = data.parent_fork_tool_call_id === null;
    if (isAgents) line(data.turn_id).dataset.sequence = data.sequence;
    const texts = data.blocks.filter((/** @type {any} */ block) => block.type === "text");
    line(data.turn_id).textContent = texts.map((/** @type {any} */ one) => one.content).join("");
  }
  if (event === "turn:patch" && data.data.type === "text") {
    line(data.turn_id).append(data.data.text_delta);
  }
  if (event === "system:error") line("error").textContent = data.message;
}

// What is kept behind that turn is told anew.
/** @param {number} sequence */
function rollBack(sequence) {
  const shown = /** @type {HTMLElement[]} */ ([...turns.children]);
  const isGone = (/** @type {HTMLElement} */ one) => Number(one.dataset.sequence) > sequence;
  const first = shown.findIndex(isGone);
  if (first >= 0) for (const one of shown.slice(first)) one.remove();
}

/** @param {string} id */
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
