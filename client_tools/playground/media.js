/**
 * Shows media: images that are in the page, other files to save, and links to what is elsewhere.
 *
 * Nothing is loaded from elsewhere, and no file becomes a document: an image is only ever an `img`,
 * in which no script runs.
 */

import { escapeInvisible } from "../js/src/index.js";
import { download, el, icon } from "./dom.js";
import { bytesOf, formatBytes, savedName, shownName, sizeOf } from "./parts.js";

/** @typedef {import("./parts.js").Medium} Medium */

/** Pixels of an image that the page draws; more take the memory of the whole tab. */
const MAX_PIXELS = 64_000_000;
/** Time until a saved file is released. */
const SAVED = 60_000; // milliseconds

/**
 * @param {readonly Medium[]} media
 * @returns {HTMLElement[]} the list that shows them; none without media
 */
export function mediaList(media) {
  if (media.length === 0) return [];
  const list = el("ul", { class: "media", label: "Images and files" }, ...media.map(mediumItem));
  list.setAttribute("role", "list"); // which WebKit takes from a list without bullets
  return [list];
}

/** @param {Medium} medium */
function mediumItem(medium) {
  const item = el("li", {});
  const chip = () => (medium.url.startsWith("data:") ? fileChip(medium) : linkChip(medium));
  if (medium.type !== "image" || !medium.url.startsWith("data:image/")) {
    item.append(chip());
    return item;
  }
  const opener = el("button", {
    class: "picture",
    type: "button",
    label: `Open the image ${shownName(medium)}`,
    title: shownName(medium),
    onClick: () => openViewer(medium),
  });
  item.append(opener);
  loadImage(medium.url, (image) => {
    if (image) opener.append(image);
    else item.replaceChildren(chip(), el("span", { class: "about" }, "cannot be shown"));
  });
  return item;
}

/**
 * @param {string} url
 * @param {(image: HTMLImageElement | null) => void} onReady gets null if it cannot be shown: it is
 *   broken or too large. It is not drawn before, because drawing takes the memory.
 */
export function loadImage(url, onReady) {
  const image = el("img", {});
  image.alt = "";
  image.decoding = "async";
  image.addEventListener("error", () => onReady(null), { once: true });
  image.addEventListener(
    "load",
    () => onReady(image.naturalWidth * image.naturalHeight > MAX_PIXELS ? null : image),
    { once: true },
  );
  image.src = url;
}

/** @param {Medium} medium */
function fileChip(medium) {
  const size = formatBytes(sizeOf(medium.url));
  const name = shownName(medium);
  return el(
    "button",
    {
      class: "chip",
      type: "button",
      label: `Save ${name}, ${size}`,
      title: name,
      onClick: () => save(medium),
    },
    icon("file"),
    el("bdi", { class: "file-name" }, name),
    el("span", { class: "size" }, size),
  );
}

/** @param {Medium} medium that is elsewhere */
function linkChip(medium) {
  const address = escapeInvisible(medium.url);
  const name = medium.name ? shownName(medium) : address;
  const parts = [icon("file"), el("bdi", { class: "file-name" }, name)];
  if (!/^https?:\/\//i.test(medium.url)) return el("span", { class: "chip" }, ...parts);
  const link = el("a", { class: "chip", title: address }, ...parts);
  link.href = medium.url;
  link.target = "_blank";
  link.rel = "noopener noreferrer";
  return link;
}

/** @param {Medium} medium */
function save(medium) {
  const bytes = bytesOf(medium.url);
  // with its own type, a browser might open it
  if (bytes) download(bytes, savedName(medium), SAVED, "application/octet-stream");
}

/** @type {{dialog: HTMLDialogElement, show: (medium: Medium) => void} | null} */
let viewer = null;

/** @param {Medium} medium an image in the page, shown as large as the screen allows */
export function openViewer(medium) {
  viewer ??= createViewer();
  viewer.show(medium);
  viewer.dialog.showModal();
}

function createViewer() {
  const place = el("div", { class: "full" });
  const name = el("bdi", { class: "file-name" });
  let shown = /** @type {Medium | null} */ (null);
  const dialog = el("dialog", { class: "viewer", label: "Image" });
  const close = () => dialog.close();
  const saver = el(
    "button",
    { class: "button small", type: "button", onClick: () => shown && save(shown) },
    "Save",
  );
  const closer = el("button", { class: "button small", type: "button", onClick: close }, "Close");
  dialog.append(place, el("footer", {}, name, saver, closer));
  dialog.addEventListener("click", ({ target }) => {
    if (target === dialog || target === place) close();
  });
  dialog.addEventListener("close", () => place.replaceChildren());
  document.body.append(dialog);
  return {
    dialog,
    /** @param {Medium} medium */
    show(medium) {
      shown = medium;
      name.textContent = shownName(medium);
      dialog.setAttribute("aria-label", `Image ${shownName(medium)}`);
      place.replaceChildren();
      loadImage(medium.url, (image) => {
        if (!image || shown !== medium) return;
        image.alt = shownName(medium);
        place.replaceChildren(image);
      });
    },
  };
}
