/** Puts the page together: the chat, the wire beside it, and what the tools may touch. */

import { Api, asRecord, parseJson } from "./api.js";
import { Composer } from "./composer.js";
import { ConfirmDialog } from "./confirm.js";
import { Conversation } from "./conversation.js";
import { need } from "./dom.js";
import { Inspector } from "./inspector.js";
import { keepAtEnd } from "./scroll.js";
import { randomId, recall, remember } from "./session.js";
import { Transcript } from "./transcript.js";

/** @typedef {import("./conversation.js").Activity} Activity */

/** @type {Record<Activity, string>} */
const STATUS = {
  idle: "",
  loading: "Loading the conversation",
  sending: "",
  waiting: "Waiting for the answer before to end",
  answering: "",
  working: "A tool is running in this page",
  reconnecting: "The connection broke. Connecting again",
};
const HASH = "#conversation=";

const transcriptRoot = need("#transcript", HTMLElement);
const thinking = need("#thinking", HTMLElement);
const status = need("#status", HTMLElement);
const keyForm = need("#key-form", HTMLFormElement);
const keyField = need("#key", HTMLInputElement);

const inspector = new Inspector(need("#events", HTMLElement), [
  need("#events-count", HTMLElement),
  need("#events-badge", HTMLElement),
]);
const api = new Api({ key: () => recall("key"), log: (exchange) => inspector.add(exchange) });
const confirm = new ConfirmDialog();
const hands = {
  /** @param {string} color */
  setBackground(color) {
    document.body.style.backgroundColor = color;
    remember("background", JSON.stringify({ conversation: conversation.id, color }));
  },
  /** @type {import("./tools.js").Hands["confirm"]} */
  confirm: (question, signal) => confirm.ask(question, signal),
};

const toEnd = keepAtEnd(need("#scroll", HTMLElement), need("#jump", HTMLElement));
let onKey = () => {};
const composer = new Composer({ onSend: send, onStop: () => void conversation.stop() });
const view = Object.assign(new Transcript(transcriptRoot, onRemedy), {
  /** @param {Activity} activity */
  setActivity(activity) {
    composer.busy = activity !== "idle";
    thinking.hidden = !["sending", "waiting", "answering"].includes(activity);
    transcriptRoot.setAttribute("aria-busy", String(activity === "answering" || activity === "loading"));
    if (status.textContent !== STATUS[activity]) status.textContent = STATUS[activity];
  },
  /** @param {string} id */
  accepted(id) {
    const hash = HASH + encodeURIComponent(id);
    if (location.hash !== hash) history.replaceState(null, "", hash);
  },
  /** @param {import("./sse.js").SseEvent} event */
  seen: (event) => inspector.seen(event),
});
let conversation = open(idInAddress() ?? randomId());

/** @param {string} id */
function open(id) {
  return new Conversation(id, { api, view, hands });
}

/** @param {string} text */
function send(text) {
  toEnd();
  void conversation.send(text);
}

/** @param {string | null} id null: a new one */
function show(id) {
  conversation.close();
  view.clear();
  view.setActivity("idle");
  keyForm.hidden = true;
  conversation = open(id ?? randomId());
  restoreBackground();
  if (id !== null) void conversation.load();
}

function startNew() {
  history.pushState(null, "", location.pathname + location.search);
  inspector.clear();
  show(null);
  composer.focus();
}

/**
 * @param {import("./problems.js").Remedy} remedy
 * @param {() => void} again
 */
function onRemedy(remedy, again) {
  if (remedy === "again") again();
  else if (remedy === "reload") void conversation.load();
  else if (remedy === "new") startNew();
  else if (remedy === "key") askForKey(again);
  else if (remedy === "edit") {
    composer.text = view.lastWords;
    composer.focus();
  }
}

/** @param {() => void} again */
function askForKey(again) {
  onKey = again;
  keyForm.hidden = false;
  keyField.value = "";
  keyField.focus();
}

/** @returns {string | null} */
function idInAddress() {
  if (!location.hash.startsWith(HASH)) return null;
  try {
    return decodeURIComponent(location.hash.slice(HASH.length)) || null;
  } catch {
    return null;
  }
}

/** A colour belongs to the conversation in which it was chosen, also after a reload. */
function restoreBackground() {
  const chosen = asRecord(parseJson(recall("background") ?? ""));
  const isHere = chosen.conversation === conversation.id;
  document.body.style.backgroundColor = isHere ? String(chosen.color) : "";
}

/** @param {"chat" | "events"} name which part a small screen shows */
function switchTo(name) {
  document.body.dataset.view = name;
  need("#show-chat", HTMLElement).setAttribute("aria-pressed", String(name === "chat"));
  need("#show-events", HTMLElement).setAttribute("aria-pressed", String(name === "events"));
  if (name === "events") inspector.toEnd();
}

need("#new", HTMLElement).addEventListener("click", startNew);
need("#clear-events", HTMLElement).addEventListener("click", () => inspector.clear());
need("#show-chat", HTMLElement).addEventListener("click", () => switchTo("chat"));
need("#show-events", HTMLElement).addEventListener("click", () => switchTo("events"));
for (const example of need("#examples", HTMLElement).querySelectorAll("button")) {
  example.addEventListener("click", () => send(example.dataset.say ?? example.textContent?.trim() ?? ""));
}
keyForm.addEventListener("submit", (event) => {
  event.preventDefault();
  remember("key", keyField.value.trim());
  keyForm.hidden = true;
  onKey();
});
addEventListener("hashchange", () => {
  if (idInAddress() !== conversation.id) show(idInAddress());
});
restoreBackground();
if (idInAddress() !== null) void conversation.load();
if (matchMedia("(pointer: fine)").matches) composer.focus();
