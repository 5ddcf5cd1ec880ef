/** Puts the page together: the chat, the time line, and the actions of the tools. */

import { Client, randomId } from "../js/src/index.js";
import { asRecord, parseJson } from "../js/src/json.js";
import { CommandMenu } from "./commands.js";
import { Composer } from "./composer.js";
import { ConfirmDialog } from "./confirm.js";
import { Conversation, MAX_ROUNDS } from "./conversation.js";
import { ConversationList } from "./conversations.js";
import { download, need } from "./dom.js";
import { FaultPanel } from "./faultpanel.js";
import { Inspector } from "./inspector.js";
import { Outboxes } from "./outbox.js";
import { Panels } from "./panels.js";
import { Poller } from "./poller.js";
import { Message } from "./posts.js";
import { Picker } from "./picker.js";
import { PlanList } from "./plan.js";
import { ServerRecord } from "./record.js";
import { Recorder } from "./recorder.js";
import { keepAtEnd } from "./scroll.js";
import { RunnableConversations, isListOpen, keepListOpen, recall, remember } from "./session.js";
import { Transcript } from "./transcript.js";
import { READINESS } from "./turns.js";
import { UnsentCards } from "./unsent.js";

/** @typedef {import("./conversation.js").Activity} Activity */

/** @type {Record<Activity, string>} */
const STATUS = {
  idle: "",
  elsewhere: "",
  loading: "Loading the conversation",
  sending: "",
  waiting: "Waiting for the previous answer to end",
  answering: "",
  working: "A tool is running in this page",
  reconnecting: "The connection broke. Connecting again",
};
const HASH = "#conversation=";
/** Few retries for a server that has never answered; more for one that may be restarting. */
const RETRY = { attempts: 8, unanswered: 4, longestDelay: 8000 };
/** Time until an exported file is released. */
const SAVED = 60_000; // milliseconds
/** A screen that has room for one part of the page. */
const NARROW = matchMedia("(max-width: 59.99rem)");

const transcriptRoot = need("#transcript", HTMLElement);
const thinking = need("#thinking", HTMLElement);
const status = need("#status", HTMLElement);
const keyForm = need("#key-form", HTMLFormElement);
const keyField = need("#key", HTMLInputElement);

const cut = need("#cut", HTMLButtonElement);
const faults = new FaultPanel();
const recorder = new Recorder((kept) => {
  inspector.add(kept);
  panels.add(kept);
});
const counters = [need("#events-count", HTMLElement), need("#events-badge", HTMLElement)];
const inspector = new Inspector(need("#events", HTMLElement), counters, () => recorder.steps);
const panels = new Panels(() => ({
  access: { url: new URL(".", location.href).href, apiKey: recall("key") },
  conversation: conversation.id,
  readNewest: async (signal) =>
    (await connect({ quiet: true }).conversation(conversation.id, { signal })).runId,
}));
const record = new ServerRecord(() => ({ client: connect({ tools: {} }), id: conversation.id }));
const runnable = new RunnableConversations();
const confirm = new ConfirmDialog("#confirm", "#confirm-question");
const actions = {
  /** @param {string} color */
  setBackground(color) {
    document.body.style.backgroundColor = color;
    remember("background", JSON.stringify({ conversation: conversation.id, color }));
  },
  /** @type {import("./tools.js").PageActions["confirm"]} */
  confirm: (question, signal) => confirm.ask(question, signal),
};

const scroller = need("#scroll", HTMLElement);
const { toEnd, keepPlace } = keepAtEnd(scroller, need("#jump", HTMLElement));
let onKey = () => {};
const composer = new Composer({
  onSend: send,
  onMeanwhile(draft, onBusy) {
    const message = new Message(draft.text, { attached: draft.attached, to: picker.options });
    picker.sent();
    void conversation.postMeanwhile(message, onBusy);
  },
  onStop: () => void conversation.stop(),
});
new CommandMenu(
  () => picker.commands,
  (text) => {
    composer.text = text;
    composer.focus();
  },
);
const picker = new Picker(() => (composer.attachments.model = picker.model));
const poller = new Poller(() => conversation.checkOwed());
const onReply = (/** @type {import("./conversation.js").Reply} */ reply) =>
  void conversation.answer(reply);
const onRun = () => {
  runnable.add(conversation.id);
  void conversation.load();
};
const onAnew = (
  /** @type {import("./posts.js").Edit | import("./posts.js").Again} */ post,
  /** @type {import("./editor.js").OnBusy | undefined} */ onBusy,
) => void (onBusy ? conversation.postMeanwhile(post, onBusy) : conversation.postAnew(post));
const outboxes = new Outboxes();
const edit = (/** @type {import("./composer.js").Draft | null} */ message) =>
  message && composer.restore(message);
const unsent = new UnsentCards(need("#unsent", HTMLElement), {
  onRetry: (id) => void conversation.retry(id),
  onEdit: (id) => edit(conversation.pending.take(id)),
  onNew(id) {
    const message = conversation.pending.take(id);
    startNew();
    edit(message);
  },
  onDrop: (id) => void conversation.pending.take(id),
  onKey: (id) => askForKey(() => void conversation.retry(id)),
  onFocusLost: () => composer.focus(),
});
const transcript = new Transcript(transcriptRoot, new PlanList(), need("#queued", HTMLElement), {
  onRemedy,
  onReply,
  onRun,
  onCut: toEnd,
  readCost: async (runId) =>
    (await connect({ quiet: true }).run(conversation.id, runId)).cost,
  turns: {
    onEdit: onAnew,
    onAgain: onAnew,
    onSwitch: (id, topOf) => keepPlace(topOf, () => conversation.switchTo(id)),
    onWords: (text) => composer.add(text),
    onFocusLost: () => composer.focus(),
  },
});
const showActivity = transcript.setActivity.bind(transcript);
const addPast = transcript.addPast.bind(transcript);
const view = Object.assign(
  transcript,
  {
    /** @param {Activity} activity */
    setActivity(activity) {
      showActivity(activity);
      unsent.readiness = READINESS[activity] ?? "blocked";
      composer.busy = activity !== "idle" && activity !== "elsewhere";
      composer.taken = ["waiting", "answering", "working"].includes(activity);
      if (activity === "idle") {
        poller.begin();
        void list.refresh();
      } else poller.end();
      cut.disabled = !["waiting", "answering"].includes(activity);
      thinking.hidden = !["sending", "waiting", "answering"].includes(activity);
      transcriptRoot.setAttribute(
        "aria-busy",
        String(activity === "answering" || activity === "loading"),
      );
      if (status.textContent !== STATUS[activity]) status.textContent = STATUS[activity];
    },
    setUnsent: unsent.show.bind(unsent),
    /** @param {import("./history.js").PastMessage} message */
    addPast(message) {
      if (message.role === "user") picker.follow(message);
      addPast(message);
    },
    /**
     * @param {string} id
     * @param {boolean} isNews
     */
    accepted(id, isNews) {
      const hash = HASH + encodeURIComponent(id);
      if (location.hash !== hash) history.replaceState(null, "", hash);
      if (!isNews) return;
      runnable.keep(id);
      void list.refresh();
    },
  },
);
const list = new ConversationList(() => connect({ quiet: true }), {
  onKey() {
    if (NARROW.matches) list.close();
    askForKey(() => list.open());
  },
  onDeleted(id) {
    outboxes.forget(id);
    if (id !== conversation.id) return;
    history.replaceState(null, "", location.pathname + location.search);
    clearEvents();
    show(null);
  },
  onChosen: leaveList,
  onToggle(isOpen) {
    // where it takes the place of the chat, nobody wants to begin with it
    if (!NARROW.matches) keepListOpen(isOpen);
  },
});
let conversation = open(idInAddress());
list.current = conversation.id;

/** @param {string | null} known null: a new one */
function open(known) {
  // a new conversation has what was not sent in the last one that is still new
  const id = known ?? outboxes.newest ?? randomId();
  if (known === null) runnable.begin(id);
  const outbox = outboxes.of(id, known === null);
  return new Conversation(id, { connect, view, actions, mayRun: () => runnable.has(id), outbox });
}

/** @type {import("./conversation.js").Connect} */
function connect({ tools = {}, trace, quiet = false }) {
  const record = quiet ? () => {} : recorder.tracer();
  const apiKey = recall("key");
  return new Client({
    url: new URL(".", location.href).href,
    tools,
    // another client may have its own tools in the same conversation
    unknownTools: "leave",
    limits: { rounds: MAX_ROUNDS },
    retry: RETRY,
    fetch: faults.fetch,
    trace: (step) => {
      record(step);
      trace?.(step);
    },
    ...(apiKey && { apiKey }),
  });
}

/** @param {import("./composer.js").Draft} draft */
function send({ text, attached }) {
  toEnd();
  const to = picker.options;
  picker.sent();
  void conversation.send(text, { attached, to });
}

/** Show what the server offers; without that, a message goes to its default agent. */
async function readOffers() {
  try {
    const { agents, limits } = await connect({ quiet: true }).agents();
    composer.attachments.limits = limits;
    picker.agents = agents;
  } catch {
    // a server that plays a recording has none, and whoever needs a key is asked for it by others
  }
}

/** @param {string | null} id null: a new one */
function show(id) {
  conversation.close();
  view.leave();
  picker.leave();
  view.setActivity("idle");
  keyForm.hidden = true;
  conversation = open(id);
  list.current = conversation.id;
  restoreBackground();
  begin(id !== null);
}

/** @param {boolean} isKnown whether the conversation is one that the server has */
function begin(isKnown) {
  unsent.show([]);
  // whether a message arrived that the page knows nothing of, the server says
  if (isKnown || !outboxes.of(conversation.id, true).isEmpty) void conversation.load();
}

/** Show the chat instead of the list, where there is room for one of them. */
function leaveList() {
  if (!list.isOpen || !NARROW.matches) return;
  list.close();
  scroller.focus();
}

function startNew() {
  leaveList();
  history.pushState(null, "", location.pathname + location.search);
  clearEvents();
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
    composer.restore({ text: view.lastWords, attached: view.lastAttached });
    view.lastAttached = [];
  }
}

/** @param {() => void} again */
function askForKey(again) {
  onKey = again;
  keyForm.hidden = false;
  keyField.value = "";
  keyField.focus();
}

function clearEvents() {
  recorder.clear();
  inspector.clear();
  panels.clear();
}

function exportRun() {
  const file = recorder.export();
  if (file) return download(JSON.stringify(file, null, 1), "passback-run.json", SAVED);
  status.textContent = "There is no whole run to export: send a message first";
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

/** Restore the colour that was chosen in this conversation, after a reload or a change. */
function restoreBackground() {
  const chosen = asRecord(parseJson(recall("background") ?? ""));
  const isHere = chosen.conversation === conversation.id;
  document.body.style.backgroundColor = isHere ? String(chosen.color) : "";
}

/** @param {"chat" | "events"} name the part that a small screen shows */
function switchTo(name) {
  leaveList();
  document.body.dataset.view = name;
  need("#show-chat", HTMLElement).setAttribute("aria-pressed", String(name === "chat"));
  need("#show-events", HTMLElement).setAttribute("aria-pressed", String(name === "events"));
  if (name === "events") inspector.toEnd();
}

need("#new", HTMLElement).addEventListener("click", startNew);
need("#clear-events", HTMLElement).addEventListener("click", clearEvents);
need("#export", HTMLElement).addEventListener("click", exportRun);
need("#show-record", HTMLElement).addEventListener("click", () => record.show());
cut.addEventListener("click", () => conversation.cut());
const filter = need("#filter", HTMLInputElement);
filter.addEventListener("input", () =>
  inspector.choose({ wanted: filter.value.trim().toLowerCase() }),
);
const merge = need("#merge", HTMLInputElement);
merge.addEventListener("change", () => inspector.choose({ merge: merge.checked }));
need("#show-chat", HTMLElement).addEventListener("click", () => switchTo("chat"));
need("#show-events", HTMLElement).addEventListener("click", () => switchTo("events"));
for (const example of need("#examples", HTMLElement).querySelectorAll("button")) {
  example.addEventListener("click", () =>
    send({ text: example.dataset.say ?? example.textContent?.trim() ?? "", attached: [] }),
  );
}
keyForm.addEventListener("submit", (event) => {
  event.preventDefault();
  remember("key", keyField.value.trim());
  keyField.value = "";
  keyForm.hidden = true;
  void readOffers();
  onKey();
});
// release the claims of this page; a page from the cache starts as after a reload
addEventListener("pagehide", () => conversation.close());
addEventListener("pageshow", ({ persisted }) => {
  if (persisted) show(idInAddress());
});
addEventListener("hashchange", () => {
  if (idInAddress() !== conversation.id) show(idInAddress());
});
restoreBackground();
void readOffers();
if (isListOpen() && !NARROW.matches) list.show();
begin(idInAddress() !== null);
if (matchMedia("(pointer: fine)").matches) composer.focus();
