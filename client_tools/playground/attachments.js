/** The attachments of the message that is being written: by button, from the clipboard, by drop. */

import { escapeInvisible } from "../js/src/index.js";
import { el, icon, need } from "./dom.js";
import { loadImage, openViewer } from "./media.js";
import { formatBytes, kindOf, mediaTypeOf, postedName, shownName, sizeOf } from "./parts.js";

/** @typedef {import("./parts.js").Kind} Kind */
/** @typedef {import("./parts.js").Medium} Medium */
/** @typedef {{bodyBytes: number, attachmentBytes: number}} Limits */
/**
 * @typedef {object} Attached
 * @property {Kind} type
 * @property {string} mediaType
 * @property {string} name
 * @property {number} size bytes
 * @property {string | null} url null while the file is read
 * @property {HTMLElement} element
 */

/** Attachments of one message. */
export const MOST = 50;
/** Limits while those of the server are not known: what fits the memory of a tab. */
const UNKNOWN = { bodyBytes: 128_000_000, attachmentBytes: 64_000_000 };
const KINDS = { image: "images", audio: "sounds", file: "files" };

/**
 * @param {{name: string, size: number}} file to be added
 * @param {readonly {size: number}[]} others
 * @param {Limits | null} limits null: not known
 * @returns {string} why it cannot be added; "": it can
 */
export function refusalOf(file, others, limits) {
  const name = escapeInvisible(postedName(file.name)) || "This file";
  if (file.size === 0) return `${name} is empty.`;
  if (others.length >= MOST) return `${name} was left out: a message has ${MOST} files at most.`;
  // a body has them in base64, which adds a third, and something else, too
  const { attachmentBytes, bodyBytes } = limits ?? UNKNOWN;
  const most = Math.min(attachmentBytes, Math.floor((bodyBytes * 3) / 4) - 16_384);
  const sum = others.reduce((total, { size }) => total + size, file.size);
  if (sum <= most) return "";
  const size = formatBytes(file.size);
  const beside = others.length > 0 ? " beside the others" : "";
  return `${name} (${size}) is too large${beside}: a message takes ${formatBytes(most)} of files.`;
}

/**
 * @param {readonly {type: Kind, name: string}[]} attached
 * @param {{id: string, media: readonly string[]} | null} model null: not known
 * @returns {string} why the model does not take them; "": it does, as far as is known
 */
export function objectionOf(attached, model) {
  const refused = model && attached.find(({ type }) => !model.media.includes(type));
  if (!refused) return "";
  const name = escapeInvisible(postedName(refused.name)) || "the attachment";
  const what = KINDS[refused.type];
  return `${escapeInvisible(model.id)} takes no ${what}: remove ${name}, or choose another model.`;
}

export class Attachments {
  /** @type {Attached[]} */
  #attached = [];
  #list = need("#attachments", HTMLElement);
  #why = need("#attach-why", HTMLElement);
  #input = need("#files", HTMLInputElement);
  /** @type {Limits | null} */
  #limits = null;
  /** @type {{id: string, media: readonly string[]} | null} */
  #model = null;
  /** Why the last file was not added. */
  #refusal = "";
  #onChange;
  #onFocusLost;

  /**
   * @param {object} on
   * @param {() => void} on.onChange called when there are others, or they can or cannot be sent
   * @param {() => void} on.onFocusLost called when what had the focus is gone
   */
  constructor({ onChange, onFocusLost }) {
    this.#onChange = onChange;
    this.#onFocusLost = onFocusLost;
    need("#attach", HTMLElement).addEventListener("click", () => this.#input.click());
    this.#input.addEventListener("change", () => {
      this.add(this.#input.files ?? []);
      this.#input.value = "";
      onFocusLost();
    });
    document.addEventListener("paste", (event) => {
      const files = event.clipboardData?.files ?? [];
      // what is copied from a table or a text often has a picture of it, too
      const isText = event.clipboardData?.getData("text/plain") !== "";
      if (files.length === 0 || isText || isInOtherForm(event.target)) return;
      event.preventDefault();
      this.add(files);
    });
    this.#takeDrops();
  }

  /** Take what is dropped anywhere: where nobody takes it, the browser leaves the page for it. */
  #takeDrops() {
    const mark = (/** @type {boolean} */ isOver) =>
      document.body.classList.toggle("dropping", isOver);
    document.addEventListener("dragover", (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      event.dataTransfer.dropEffect = "copy";
      mark(true);
    });
    document.addEventListener("dragleave", (event) => {
      if (event.relatedTarget === null) mark(false);
    });
    document.addEventListener("drop", (event) => {
      mark(false);
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      this.add(event.dataTransfer.files);
      this.#onFocusLost();
    });
  }

  /** @param {Limits | null} limits of the server */
  set limits(limits) {
    this.#limits = limits;
  }

  /** @param {{id: string, media: readonly string[]} | null} model that will answer */
  set model(model) {
    if (model === this.#model) return;
    this.#model = model;
    this.#changed();
  }

  get isEmpty() {
    return this.#attached.length === 0;
  }

  /** Whether all can be sent. */
  get isReady() {
    return !this.areBeingRead && objectionOf(this.#attached, this.#model) === "";
  }

  get areBeingRead() {
    return this.#attached.some(({ url }) => url === null);
  }

  /** @param {Iterable<File>} files */
  add(files) {
    this.#refusal = "";
    for (const file of files) {
      const refusal = refusalOf(file, this.#attached, this.#limits);
      if (refusal === "") void this.#read(file);
      else this.#refusal = [this.#refusal, refusal].filter(Boolean).join(" ");
    }
    this.#changed();
  }

  /** @param {readonly Medium[]} media of a message that was not sent */
  restore(media) {
    for (const { url, ...medium } of media) this.#append({ ...medium, size: sizeOf(url), url });
    this.#changed();
  }

  /** @returns {Medium[]} the attachments, which are removed */
  take() {
    const taken = this.#attached.map(({ type, url, mediaType, name }) => {
      return { type, url: url ?? "", mediaType, name };
    });
    this.#attached = [];
    this.#refusal = "";
    this.#list.replaceChildren();
    this.#changed();
    return taken;
  }

  /** @param {File} file */
  async #read(file) {
    const mediaType = mediaTypeOf(file.type);
    const known = { type: kindOf(mediaType), mediaType, name: postedName(file.name) };
    const attached = this.#append({ ...known, size: file.size, url: null });
    const data = await readBase64(file).catch(() => null);
    if (!this.#attached.includes(attached)) return;
    if (data === null) {
      // a folder, or a file that is gone
      this.#remove(attached);
      this.#refusal = `${shownName(attached)} cannot be read.`;
    } else {
      attached.url = `data:${mediaType};base64,${data}`;
      showThumbnail(attached);
    }
    this.#changed();
  }

  /** @param {Omit<Attached, "element">} known */
  #append(known) {
    const name = shownName(known);
    const remove = el("button", { class: "remove", type: "button", label: `Remove ${name}` });
    remove.title = `Remove ${name}`;
    remove.append(icon("remove"));
    const element = el(
      "li",
      { title: name },
      el("span", { class: "thumbnail" }, icon("file")),
      el("bdi", { class: "file-name" }, name),
      el("span", { class: "size" }, known.size > 0 ? formatBytes(known.size) : ""),
      remove,
    );
    const attached = { ...known, element };
    remove.addEventListener("click", () => this.#removeByHand(attached));
    this.#attached.push(attached);
    this.#list.append(element);
    if (attached.url !== null) showThumbnail(attached);
    return attached;
  }

  /** @param {Attached} attached */
  #removeByHand(attached) {
    const index = this.#attached.indexOf(attached);
    this.#remove(attached);
    this.#refusal = "";
    this.#changed();
    const next = this.#attached[index] ?? this.#attached.at(-1);
    const button = next?.element.querySelector(".remove");
    if (button instanceof HTMLElement) button.focus();
    else this.#onFocusLost();
  }

  /** @param {Attached} attached */
  #remove(attached) {
    this.#attached = this.#attached.filter((each) => each !== attached);
    attached.element.remove();
  }

  #changed() {
    const sentences = [this.#refusal, objectionOf(this.#attached, this.#model)];
    const why = sentences.filter(Boolean).join(" ");
    if (this.#why.textContent !== why) this.#why.textContent = why;
    this.#list.hidden = this.isEmpty;
    this.#onChange();
  }
}

/** @param {Attached} attached whose file was read */
function showThumbnail({ element, type, url, mediaType, name }) {
  if (type !== "image" || !url?.startsWith("data:image/")) return;
  const medium = { type, url, mediaType, name };
  loadImage(url, (image) => {
    if (!image) return;
    const opener = el("button", {
      class: "thumbnail",
      type: "button",
      label: `Open the image ${shownName(medium)}`,
      onClick: () => openViewer(medium),
    });
    opener.append(image);
    element.querySelector(".thumbnail")?.replaceWith(opener);
  });
}

/**
 * @param {Blob} file
 * @returns {Promise<string>}
 */
function readBase64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => {
      const url = String(reader.result);
      const data = url.slice(url.indexOf(",") + 1);
      // it was emptied since it was chosen
      if (data === "" || !url.includes(",")) reject(new Error("the file is empty"));
      else resolve(data);
    });
    reader.addEventListener("error", () => reject(reader.error));
    reader.readAsDataURL(file);
  });
}

/** @param {EventTarget | null} target of a paste */
function isInOtherForm(target) {
  return target instanceof Element && target.closest("dialog, form:not(#composer)") !== null;
}
