/** The parts of a message: its text, and the media beside it. */

import { escapeInvisible } from "../js/src/index.js";
import { asRecord } from "../js/src/json.js";

/** @typedef {"image" | "audio" | "file"} Kind */
/**
 * @typedef {object} Medium an attachment, or a medium of a result
 * @property {Kind} type
 * @property {string} url with `data:` or, of a medium that is elsewhere, another address
 * @property {string} mediaType "" if not known
 * @property {string} name "" if it has none; it may be a stranger's text
 */

/** Length of a name that the server takes, and that the page shows. */
export const MAX_NAME = 256;
/** Characters that browsers or systems do not take in a file's name, or that are not seen. */
const NO_NAME = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}"*/:<>?\\|]+/gu;
const MEDIA_TYPE = /^[\w.+-]{1,64}\/[\w.+-]{1,64}$/;
const DATA_URL = /^data:([\w.+-]{1,64}\/[\w.+-]{1,64})?((?:;[^,;]{1,64}){0,4}),/;
const NAMES = { image: "Image", audio: "Sound", file: "File" };
const KINDS = /** @type {const} */ (["image", "audio", "file"]);

/**
 * @param {string} type as the browser or a `data:` URL has it
 * @returns {string} a media type that a post may have
 */
export function mediaTypeOf(type) {
  const bare = type.split(";", 1)[0]?.trim().toLowerCase() ?? "";
  return MEDIA_TYPE.test(bare) ? bare : "application/octet-stream";
}

/**
 * @param {string} mediaType
 * @returns {Kind}
 */
export function kindOf(mediaType) {
  return KINDS.find((kind) => mediaType.startsWith(`${kind}/`)) ?? "file";
}

/**
 * @param {unknown} content a string, or parts
 * @returns {Medium[]}
 */
export function mediaOf(content) {
  return Array.isArray(content) ? content.flatMap((part) => mediumOf(asRecord(part)) ?? []) : [];
}

/**
 * @param {Record<string, unknown>} part
 * @returns {Medium | null}
 */
function mediumOf({ type, url, mediaType, name }) {
  const kind = KINDS.find((each) => each === type);
  if (kind === undefined || typeof url !== "string") return null;
  return {
    type: kind,
    url,
    mediaType: typeof mediaType === "string" ? mediaType : (DATA_URL.exec(url)?.[1] ?? ""),
    name: typeof name === "string" ? name : "",
  };
}

/**
 * Read the text of a tool's result, in which each medium is a line with its address.
 *
 * @param {string} text
 * @returns {{text: string, media: Medium[]}} the other lines, and the media that are in it
 */
export function readResult(text) {
  if (!text.includes("data:")) return { text, media: [] };
  /** @type {Medium[]} */
  const media = [];
  const lines = text.split("\n").filter((line) => {
    const found = DATA_URL.exec(line);
    const isInline = found?.[1] !== undefined && found[2]?.endsWith(";base64");
    if (isInline && /^[A-Za-z0-9+/]+={0,2}$/.test(line.slice(found[0].length))) {
      const mediaType = String(found[1]).toLowerCase();
      media.push({ type: kindOf(mediaType), url: line, mediaType, name: "" });
      return false;
    }
    return true;
  });
  return { text: lines.join("\n"), media };
}

/**
 * @param {string} url with `data:`
 * @returns {Uint8Array<ArrayBuffer> | null} null if it cannot be read
 */
export function bytesOf(url) {
  const found = DATA_URL.exec(url);
  if (!found) return null;
  const data = url.slice(found[0].length);
  try {
    if (!found[2]?.endsWith(";base64")) return new TextEncoder().encode(decodeURIComponent(data));
    return Uint8Array.from(atob(data), (char) => char.charCodeAt(0));
  } catch {
    return null;
  }
}

/**
 * @param {string} url
 * @returns {number} bytes of the medium in it; 0 for one that is elsewhere
 */
export function sizeOf(url) {
  const found = DATA_URL.exec(url);
  if (!found) return 0;
  const length = url.length - found[0].length;
  const padding = url.endsWith("==") ? 2 : Number(url.endsWith("="));
  return found[2]?.endsWith(";base64") ? Math.floor((length * 3) / 4) - padding : length;
}

/**
 * @param {string} name of a file, which may be anything
 * @returns {string} one that the server takes, with the end that says what kind of file it is
 */
export function postedName(name) {
  const letters = [...name.replace(/\p{Cs}/gu, "\ufffd")];
  if (letters.length <= MAX_NAME) return letters.join("");
  const [end = ""] = /\.[\w-]{1,16}$/.exec(letters.slice(-17).join("")) ?? [];
  return `${letters.slice(0, MAX_NAME - 1 - end.length).join("")}…${end}`;
}

/**
 * @param {{name: string, type: Kind}} medium
 * @returns {string} its name for people, in which nothing is hidden or reordered
 */
export function shownName({ name, type }) {
  return escapeInvisible(postedName(name)) || NAMES[type];
}

/**
 * @param {Medium} medium
 * @returns {string} the name under which it is saved: a bare name without invisible characters
 */
export function savedName({ name, type, mediaType }) {
  const bare = postedName(name.replace(NO_NAME, "_")).replace(/^[.\s]+|[.\s]+$/g, "");
  if (bare !== "") return bare;
  const end = /^[\w-]{1,16}/.exec(mediaType.split("/")[1] ?? "")?.[0];
  return end === undefined ? type : `${type}.${end}`;
}

/**
 * @param {number} bytes
 * @returns {string} for people
 */
export function formatBytes(bytes) {
  if (bytes < 1000) return bytes === 1 ? "1 byte" : `${bytes} bytes`;
  const [size, unit] = bytes < 999_500 ? [bytes / 1000, "kB"] : [bytes / 1_000_000, "MB"];
  return `${size < 10 ? Math.round(size * 10) / 10 : Math.round(size)} ${unit}`;
}
