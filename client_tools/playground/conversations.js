/** The list of conversations beside the chat: search, open, rename, delete. */

import { ApiError, escapeProse } from "../js/src/index.js";
import { ConfirmDialog } from "./confirm.js";
import { button, el, icon, need } from "./dom.js";
import { Listing } from "./listing.js";
import { Poller } from "./poller.js";
import { fromError } from "./problems.js";

/** @typedef {import("../js/src/index.js").Client} Client */
/** @typedef {import("./listing.js").Listed} Listed */

/** Time between the last letter of a search and its request. */
const TYPING = 200; // milliseconds
const MAX_TITLE = "200"; // characters
/** @type {Record<string, string>} */
const STATUS = { running: "answering", waiting: "waits for you" };

export class ConversationList {
  /** The conversation that the page shows. */
  #current = "";
  #root = need("#conversations", HTMLElement);
  #toggle = need("#show-list", HTMLButtonElement);
  #search = need("#search", HTMLInputElement);
  #rows = need("#conversation-list", HTMLElement);
  #status = need("#list-status", HTMLElement);
  #remedy = need("#list-remedy", HTMLButtonElement);
  #more = need("#more", HTMLButtonElement);
  #deletion = new ConfirmDialog("#delete", "#delete-title");
  #connect;
  #on;
  #listing;
  #poller = new Poller(async () => {
    if (!this.#listing.isSearch) await this.refresh();
  });
  /** @type {Map<string, Row>} */
  #byId = new Map();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #typing;

  /**
   * @param {() => Client} connect
   * @param {object} on
   * @param {() => void} on.onKey called to ask for the key that the server needs
   * @param {(id: string) => void} on.onDeleted
   * @param {() => void} on.onChosen called when a person has chosen a conversation
   * @param {(isOpen: boolean) => void} on.onToggle called when the list was opened or closed
   */
  constructor(connect, on) {
    this.#connect = connect;
    this.#on = on;
    this.#listing = new Listing(connect);
    this.#toggle.addEventListener("click", () => (this.isOpen ? this.close() : this.open()));
    need("#close-list", HTMLElement).addEventListener("click", () => this.#leave());
    this.#root.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      if (event.target !== this.#search || this.#search.value === "") return this.#leave();
      this.#search.value = "";
      this.#begin();
    });
    this.#search.addEventListener("input", () => {
      clearTimeout(this.#typing);
      this.#typing = setTimeout(() => this.#begin(), TYPING);
    });
    need("#search-form", HTMLFormElement).addEventListener("submit", (event) => {
      event.preventDefault();
      this.#begin();
    });
    this.#more.addEventListener("click", () => void this.#show(() => this.#listing.more()));
  }

  get isOpen() {
    return !this.#root.hidden;
  }

  /** @param {string} id */
  set current(id) {
    this.#current = id;
    for (const row of this.#byId.values()) row.isCurrent = row.id === id;
  }

  /** @param {boolean} isOpen */
  #toggleRoot(isOpen) {
    this.#root.hidden = !isOpen;
    this.#root.parentElement?.classList.toggle("with-list", isOpen);
  }

  close() {
    this.#toggleRoot(false);
    this.#toggle.setAttribute("aria-expanded", "false");
    clearTimeout(this.#typing);
    this.#poller.end();
    this.#listing.stop();
    this.#on.onToggle(false);
  }

  /** Show what has changed, unless the list is closed. */
  async refresh() {
    if (!this.isOpen || this.#status.dataset.busy === "true") return;
    await this.#show(() => this.#listing.refresh(), true);
  }

  open() {
    this.show();
    // a field with the focus would open the keyboard of a phone, above the list
    (matchMedia("(pointer: fine)").matches ? this.#search : this.#root).focus();
  }

  /** Open it, and leave the focus where it is. */
  show() {
    this.#toggleRoot(true);
    this.#toggle.setAttribute("aria-expanded", "true");
    this.#begin();
    this.#poller.begin();
    this.#on.onToggle(true);
  }

  /** Close it, and go back to the button that opened it. */
  #leave() {
    this.close();
    this.#toggle.focus();
  }

  #begin() {
    clearTimeout(this.#typing);
    void this.#show(() => this.#listing.begin(this.#search.value.trim()));
  }

  /**
   * @param {() => Promise<boolean>} read
   * @param {boolean} [isQuiet] whether nobody waits for it
   */
  async #show(read, isQuiet = false) {
    if (!isQuiet) this.#tell("Loading", true);
    try {
      if (!(await read()) || !this.isOpen) return;
      this.#render();
      this.#tell(this.#summary());
    } catch (error) {
      // what was read before stays
      if (this.isOpen) this.#complain(error);
    }
  }

  #summary() {
    const { entries, hasMore, isSearch } = this.#listing;
    if (entries.length === 0) {
      if (hasMore) return "None found yet";
      return isSearch ? "No title contains this" : "No conversations yet";
    }
    const found = `${entries.length}${hasMore ? " or more" : ""}`;
    return `${found} ${entries.length === 1 && !hasMore ? "conversation" : "conversations"}`;
  }

  /**
   * @param {string} text
   * @param {boolean} [isBusy]
   */
  #tell(text, isBusy = false) {
    if (this.#status.textContent !== text) this.#status.textContent = text;
    this.#status.dataset.busy = String(isBusy);
    this.#rows.setAttribute("aria-busy", String(isBusy));
    this.#remedy.hidden = true;
  }

  /** @param {unknown} error */
  #complain(error) {
    const { title, message, advice, remedy } = fromError(error);
    this.#tell([`${title}.`, escapeProse(message), advice].filter(Boolean).join(" "));
    this.#more.hidden = true;
    this.#remedy.hidden = !["key", "again"].includes(remedy);
    this.#remedy.textContent = remedy === "key" ? "Enter an API key" : "Try again";
    this.#remedy.onclick = () => (remedy === "key" ? this.#on.onKey() : this.#begin());
  }

  #render() {
    const { entries, hasMore } = this.#listing;
    const kept = new Map(entries.map(({ id }) => [id, this.#byId.get(id) ?? this.#newRow(id)]));
    const focused = document.activeElement;
    const rows = entries.map((entry) => {
      const row = /** @type {Row} */ (kept.get(entry.id));
      row.show(entry, entry.id === this.#current);
      return row.element;
    });
    for (const [id, { element }] of this.#byId) if (!kept.has(id)) element.remove();
    // only rows that have moved are inserted, so that readers and the focus stay where they are
    rows.forEach((element, index) => {
      const there = this.#rows.children[index];
      if (there !== element) this.#rows.insertBefore(element, there ?? null);
    });
    this.#byId = kept;
    this.#more.hidden = !hasMore;
    if (focused instanceof HTMLElement && focused !== document.activeElement) focused.focus();
  }

  /** @param {string} id */
  #newRow(id) {
    return new Row(id, {
      onChosen: () => this.#on.onChosen(),
      onRename: (title) => this.#rename(id, title),
      onDelete: () => void this.#delete(id),
    });
  }

  /**
   * @param {string} id
   * @param {string} title
   * @returns {Promise<boolean>} false if it was refused
   */
  async #rename(id, title) {
    try {
      await this.#connect().rename(id, title);
    } catch (error) {
      this.#complain(error);
      return false;
    }
    await this.#show(() => this.#listing.refresh(), true);
    return true;
  }

  /** @param {string} id */
  async #delete(id) {
    const row = this.#byId.get(id);
    if (!row || !(await this.#deletion.ask(row.title))) return row?.focus();
    const rows = [...this.#byId.values()];
    const at = rows.indexOf(row);
    try {
      await this.#connect().delete(id);
    } catch (error) {
      if (!isGone(error)) return this.#complain(error);
    }
    this.#listing.remove(id);
    this.#render();
    this.#tell("Deleted");
    (rows[at + 1] ?? rows[at - 1] ?? this.#search).focus();
    this.#on.onDeleted(id);
  }
}

/** One conversation of the list. */
class Row {
  element = el("li", {});
  id;
  /** As it is shown. */
  title = "";
  #name = el("bdi", { class: "list-title" });
  #about = el("span", { class: "about" });
  #time = el("time", { class: "about" });
  #link;
  #rename;
  #delete;
  #on;
  #known = "";
  /** @type {HTMLFormElement | null} */
  #form = null;

  /**
   * @param {string} id
   * @param {object} on
   * @param {() => void} on.onChosen
   * @param {(title: string) => Promise<boolean>} on.onRename returns false if it was refused
   * @param {() => void} on.onDelete
   */
  constructor(id, on) {
    this.id = id;
    this.#on = on;
    this.#link = el("a", { onClick: on.onChosen }, this.#name, this.#about, this.#time);
    this.#link.href = `#conversation=${encodeURIComponent(id)}`;
    this.#rename = el("button", { class: "button quiet small", type: "button" }, icon("edit"));
    this.#rename.addEventListener("click", () => this.#edit());
    this.#delete = el("button", { class: "button quiet small", type: "button" }, icon("delete"));
    this.#delete.addEventListener("click", on.onDelete);
    this.element.append(this.#link, this.#rename, this.#delete);
  }

  /** @param {boolean} isCurrent whether the page shows it */
  set isCurrent(isCurrent) {
    if (isCurrent) this.#link.setAttribute("aria-current", "page");
    else this.#link.removeAttribute("aria-current");
  }

  /**
   * @param {Listed} entry
   * @param {boolean} isCurrent
   */
  show({ title, status, updatedAt }, isCurrent) {
    this.isCurrent = isCurrent;
    this.#known = title;
    this.title = escapeProse(title) || "Untitled";
    const time = new Date(updatedAt);
    const isTime = !Number.isNaN(time.getTime());
    setText(this.#name, this.title);
    setText(this.#about, STATUS[status] ?? "");
    setText(this.#time, isTime ? shownTime(time) : "");
    if (isTime) this.#time.dateTime = time.toISOString();
    this.#link.title = this.title;
    this.#rename.setAttribute("aria-label", `Rename: ${this.title}`);
    this.#delete.setAttribute("aria-label", `Delete: ${this.title}`);
  }

  focus() {
    this.#link.focus();
  }

  /** Replace the row by a field with the title. */
  #edit() {
    const field = el("input", { label: "Title" });
    const save = el("button", { class: "button primary small", type: "submit" }, "Save");
    const cancel = button("Cancel", () => this.#endEdit(), "button small");
    const form = el("form", { class: "rename" }, field, save, cancel);
    field.value = this.#known;
    field.required = true;
    field.autocomplete = "off";
    field.setAttribute("maxlength", MAX_TITLE);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (save.disabled) return;
      save.disabled = true;
      const isDone = await this.#on.onRename(field.value);
      save.disabled = false;
      if (isDone) this.#endEdit();
      else field.focus();
    });
    form.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      this.#endEdit();
    });
    this.#form = form;
    this.element.replaceChildren(form);
    field.select();
    field.focus();
  }

  #endEdit() {
    const hadFocus = this.#form?.contains(document.activeElement) ?? false;
    this.#form = null;
    this.element.replaceChildren(this.#link, this.#rename, this.#delete);
    if (hadFocus) this.#rename.focus();
  }
}

/**
 * @param {unknown} error
 * @returns {boolean} whether the server does not have the conversation
 */
function isGone(error) {
  return error instanceof ApiError && error.code === "conversation_not_found";
}

/**
 * @param {Element} element
 * @param {string} text
 */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** @param {Date} time */
function shownTime(time) {
  const isToday = time.toDateString() === new Date().toDateString();
  return isToday
    ? time.toLocaleTimeString([], { timeStyle: "short" })
    : time.toLocaleDateString([], { dateStyle: "medium" });
}
