/** The meaning of steps of a conversation: requests, answers, events and errors. */

/** Paths of posts, also to an agent by its name. */
const POST = /\/send-message$/;

/** @param {string} path of a request */
export function isPost(path) {
  return POST.test(path);
}

/** @param {Record<string, string>} headers of an answer */
export function isStream(headers) {
  return (
    "x-conversation-id" in headers &&
    (headers["content-type"] ?? "").startsWith("text/event-stream")
  );
}

/** @param {import("../js/src/index.js").Event} event */
export function isHandedBack(event) {
  return event.type === "run-end" && event.outcome === "handed-back";
}

/**
 * @param {unknown} error
 * @returns {boolean} whether this page aborted the request
 */
export function isAbort(error) {
  return error instanceof Error && error.name === "AbortError";
}
