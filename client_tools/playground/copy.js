/** Buttons that copy a text, and say whether they could. */

import { el, icon } from "./dom.js";

const SHOWN = 2000; // milliseconds
const REFUSED = "The browser does not let this page copy. Select the text instead.";

/** Reads out what a button has done; a screen reader does not hear that its look has changed. */
const spoken = typeof document === "undefined" ? null : el("p", { class: "hidden" });
spoken?.setAttribute("role", "status");

/**
 * @param {() => string} source
 * @param {string} name what it does, for people who cannot see it
 * @param {string} [text] shown beside the icon
 * @returns {HTMLButtonElement}
 */
export function copyButton(source, name, text = "") {
  const words = el("span", {}, text);
  const sign = el("span", { class: "sign" }, icon("copy"));
  const element = el("button", { class: "copy", type: "button", title: name, label: name });
  element.append(sign, ...(text ? [words] : []));
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const show = (/** @type {"" | "done" | "refused"} */ state) => {
    const said = state === "done" ? "Copied" : state && REFUSED;
    element.dataset.state = state;
    element.setAttribute("aria-label", said || name);
    element.title = said || name;
    sign.replaceChildren(icon(state === "done" ? "done" : state ? "alert" : "copy"));
    words.textContent = state === "done" ? "Copied" : state ? "Not copied" : text;
    if (said) speak(said);
  };
  element.addEventListener("click", async () => {
    const isCopied = await write(source());
    show(isCopied ? "done" : "refused");
    clearTimeout(timer);
    timer = setTimeout(() => show(""), isCopied ? SHOWN : 3 * SHOWN);
  });
  return element;
}

/** @param {string} words */
function speak(words) {
  if (!spoken) return;
  if (!spoken.isConnected) document.body.append(spoken);
  // the same words again are a change, too
  spoken.textContent = "";
  requestAnimationFrame(() => (spoken.textContent = words));
}

/**
 * @param {string} text
 * @returns {Promise<boolean>} false if the browser refuses, or has no clipboard because the page
 *   came from another machine without TLS
 */
async function write(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
