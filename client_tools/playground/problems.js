/** Errors in words for the person at the page, with advice. */

import {
  ApiError,
  ConnectionLost,
  InvalidArgument,
  LimitExceeded,
  PassbackError,
  ProtocolError,
  RunFailed,
} from "../js/src/index.js";

/**
 * @typedef {"again" | "reload" | "key" | "new" | "edit" | "none"} Remedy again: repeat what was
 *   refused; reload: show what the server has; key: enter an API key; new: start a conversation;
 *   edit: put the text back into the message field.
 */

/**
 * @typedef {object} Problem
 * @property {string} title
 * @property {string} message text of the server or the browser
 * @property {string} advice
 * @property {Remedy} remedy
 * @property {string} code
 * @property {string | null} requestId
 */

/** @type {Record<Remedy, string>} labels of their buttons */
export const REMEDIES = {
  again: "Try again",
  reload: "Show what the server has",
  key: "",
  new: "New conversation",
  edit: "Edit the message",
  none: "",
};

/** @type {Record<string, {title: string, advice: string, remedy: Remedy}>} */
const KNOWN = {
  unauthenticated: {
    title: "This server asks for an API key",
    advice: "Enter one of its keys. It is kept in this tab only.",
    remedy: "key",
  },
  keys_needed: {
    title: "This server shows no list",
    advice: "Everything else works. Give the server API keys, or let it listen on loopback only.",
    remedy: "none",
  },
  conversation_not_found: {
    title: "This conversation is not on the server",
    advice: "It may have been deleted, or the server keeps another store now. Start a new one.",
    remedy: "new",
  },
  conversation_deleted: {
    title: "This conversation was deleted",
    advice: "The server has none of it any more. Start a new one.",
    remedy: "new",
  },
  conversation_busy: {
    title: "The agent is still answering here",
    advice: "Another tab may have asked. Try again: the running answer is shown first.",
    remedy: "again",
  },
  message_not_found: {
    title: "This message is not there any more",
    advice: "Another tab or device may have another version open. Show what the server has.",
    remedy: "reload",
  },
  tool_result_conflict: {
    title: "Somebody else answered first",
    advice:
      "This call has another answer already, from another tab or device, and the first one " +
      "counts. Show what the server has.",
    remedy: "reload",
  },
  invalid_answer: {
    title: "The answer does not fit the question",
    advice: "Choose again, and send it.",
    remedy: "none",
  },
  tool_call_not_found: {
    title: "Nobody waits for this result any more",
    advice: "The conversation has gone on without it. Show what the server has.",
    remedy: "reload",
  },
  run_not_found: {
    title: "This answer can no longer be replayed",
    advice: "Its log has expired; the messages are kept. Show what the server has.",
    remedy: "reload",
  },
  cursor_expired: {
    title: "This answer is too long to be replayed",
    advice:
      "Its beginning is no longer streamed; the messages are kept. Show what the server has " +
      "when it has ended.",
    remedy: "reload",
  },
  body_too_large: {
    title: "The message is too large",
    advice: "Shorten it and send it again.",
    remedy: "edit",
  },
  model_rejected: {
    title: "The model's service refused the request",
    advice: "Check the model's name and its key: `passback check` says what is wrong.",
    remedy: "edit",
  },
  foreign_host: {
    title: "The server does not know this address",
    advice:
      "Open the page at the address that the server printed, or add this host to its allowed " +
      "hosts.",
    remedy: "none",
  },
  foreign_origin: {
    title: "The server does not trust this page's origin",
    advice:
      "Open the page at the address that the server printed, or add this origin to its " +
      "allowed origins.",
    remedy: "none",
  },
};

/**
 * @param {unknown} error
 * @param {boolean} [isMessage] whether a message was posted, which can be changed
 * @returns {Problem}
 */
export function fromError(error, isMessage = true) {
  const found = explain(error);
  if (isMessage || found.remedy !== "edit") return found;
  return { ...found, advice: "The conversation is as it was.", remedy: "reload" };
}

/** @param {unknown} error */
function explain(error) {
  if (error instanceof ApiError) return fromApi(error);
  if (error instanceof RunFailed) return fromRun(error);
  if (
    error instanceof ConnectionLost ||
    (error instanceof ProtocolError && error.status !== null)
  ) {
    return problem("The server cannot be reached", {
      message: sentence(error.message),
      advice:
        "Check that `passback serve` is running and your network is up, then try again. " +
        "Nothing is lost.",
      remedy: "again",
      code: error instanceof ConnectionLost ? "network" : error.code,
    });
  }
  if (error instanceof InvalidArgument) {
    return problem("This cannot be sent", {
      message: sentence(error.message),
      advice: "Start a new conversation.",
      remedy: "new",
      code: error.code,
    });
  }
  if (error instanceof PassbackError) {
    const isLimit = error instanceof LimitExceeded;
    return problem(
      isLimit ? "This goes beyond a limit of this page" : "The server's answer is not understood",
      {
        message: sentence(error.message),
        advice: "The conversation is kept on the server. Show what it has.",
        remedy: "reload",
        code: error.code,
      },
    );
  }
  console.error(error);
  return problem("This page has an error", {
    message: "Its console has the details.",
    advice: "The conversation is kept on the server. Show what it has.",
    remedy: "reload",
    code: "page_error",
  });
}

/** @param {ApiError} error */
function fromApi(error) {
  const known = KNOWN[error.code];
  const status = error.status ?? 0;
  const later = status >= 500 || status === 429;
  const wait = Number(error.retryAfter) > 0 ? ` in ${Number(error.retryAfter)} s` : "";
  return problem(
    known?.title ?? (later ? "The server cannot do this now" : "The server refused the request"),
    {
      message: sentence(error.message),
      advice:
        known?.advice ??
        (later ? `Try again${wait}; nothing was stored.` : "Change the message and send it again."),
      remedy: known?.remedy ?? (later ? "again" : "edit"),
      code: error.code,
      requestId: error.requestId,
    },
  );
}

/** @param {RunFailed} error */
function fromRun(error) {
  const known = KNOWN[error.code];
  return problem(known?.title ?? "The agent could not finish its answer", {
    message: sentence(error.message),
    advice:
      known?.advice ??
      (error.retryable
        ? "This is often temporary. Send your message again; the conversation is intact."
        : "Change the message and send it again; the conversation is intact."),
    remedy: known?.remedy ?? "edit",
    code: error.code,
  });
}

/**
 * @param {string} title
 * @param {{message: string, advice: string, remedy: Remedy, code: string, requestId?: string |
 *   null}} rest
 * @returns {Problem}
 */
function problem(title, rest) {
  return { title, requestId: null, ...rest };
}

/** @param {string} text */
function sentence(text) {
  const trimmed = text.trim();
  if (trimmed === "") return "";
  const isAddress = /^https?:/.test(trimmed);
  const capital = isAddress ? trimmed : trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  return /[.!?…]$/.test(capital) ? capital : `${capital}.`;
}
