/** Forms for a person's answers: a result by hand, a decision on a call, answers to questions. */

import { escapeProse } from "../js/src/index.js";
import { button, el } from "./dom.js";

/** @typedef {import("../js/src/index.js").Question} Question */
/** @typedef {import("../js/src/index.js").QuestionAnswer} QuestionAnswer */

/**
 * @typedef {{content: unknown, isError: boolean}} Result
 * @typedef {{approved: boolean, reason?: string, always?: boolean}} Decision
 */
/**
 * @typedef {(reply: Result | Decision) => void} OnReply called with the person's answer; may be
 *   called again
 */

/**
 * @typedef {object} Draft what a person has written into a form and not sent
 * @property {(string | boolean)[]} fields their values, in order
 * @property {string} words those that a person can read
 * @property {number} focus the index of the field with the focus; -1: none
 */

/** Number of question forms, which makes the names of radio buttons unique. */
let forms = 0;

/**
 * Create a form for the result of a call that no client runs.
 *
 * @param {OnReply} onReply
 */
export function resultForm(onReply) {
  const words = textarea("Result of the call", 2);
  const failed = el("input", { type: "checkbox" });
  const onSubmit = () => onReply({ content: words.value, isError: failed.checked });
  return form(onSubmit, words, el("label", {}, failed, "The tool failed"), submit("Answer"));
}

/**
 * Create a form to let this page run the tools of a conversation that began elsewhere.
 *
 * @param {() => void} onRun
 */
export function runForm(onRun) {
  const why =
    "This conversation was not begun in this browser. Run its tools only if you know where it " +
    "comes from: their results go there.";
  return form(
    onRun,
    el("p", { class: "why" }, why),
    el("div", { class: "choices" }, submit("Run the tools of this conversation", "primary")),
  );
}

/**
 * Create a form to decide on a call of a server's tool. Enter in the reason field denies, so that
 * nothing is allowed by accident.
 *
 * @param {string} why the server's reason; may be empty
 * @param {OnReply} onReply
 */
export function approvalForm(why, onReply) {
  const reason = el("input", { label: "Why not" });
  reason.placeholder = "Why not (the agent is told)";
  reason.autocomplete = "off";
  const whyNot = () => (reason.value.trim() ? { reason: reason.value.trim() } : {});
  const deny = () => onReply({ approved: false, ...whyNot() });
  const allow = button("Allow", () => onReply({ approved: true }), "button small primary");
  const always = button(
    "Allow always",
    () => onReply({ approved: true, always: true }),
    "button small",
  );
  const never = button(
    "Never",
    () => onReply({ approved: false, always: true, ...whyNot() }),
    "button small",
  );
  for (const each of [always, never]) {
    each.title = "In this conversation, calls of this tool are not asked about again";
  }
  const row = el(
    "div",
    { class: "choices" },
    allow,
    always,
    el("span", { class: "denial" }, reason, submit("Deny"), never),
  );
  return form(deny, ...(why ? [el("p", { class: "why" }, escapeProse(why))] : []), row);
}

/**
 * @param {Required<Question>[]} questions
 * @param {OnReply} onReply
 */
export function questionForm(questions, onReply) {
  forms += 1;
  const asked = questions.map((question, index) =>
    questionField(question, `question-${forms}-${index}`),
  );
  const refuse = () => onReply({ content: "The user did not want to answer.", isError: true });
  return form(
    () => onReply({ content: { answers: asked.map(({ read }) => read()) }, isError: false }),
    ...asked.map(({ field }) => field),
    el(
      "div",
      { class: "choices" },
      submit("Answer", "primary"),
      button("Rather not say", refuse, "button small quiet"),
    ),
  );
}

/**
 * @param {Required<Question>} question
 * @param {string} name
 * @returns {{field: HTMLElement, read: () => QuestionAnswer}}
 */
function questionField({ question: asked, header, options, multiple, freeText }, name) {
  const question = escapeProse(asked);
  const inputs = options.map(() => choice(multiple, name));
  const rows = options.map(({ label, description }, index) =>
    optionRow(/** @type {HTMLElement} */ (inputs[index]), label, description),
  );
  // a radio button cannot be unchecked otherwise
  if (options.length > 0 && !multiple) rows.push(optionRow(choice(false, name), "None of these"));
  const words = textarea(
    options.length > 0 ? `In your own words: ${question}` : question,
    options.length > 0 ? 1 : 2,
  );
  words.placeholder = options.length > 0 ? "In your own words" : "";
  const field = el(
    "fieldset",
    {},
    el("legend", {}, ...(header ? [el("strong", {}, escapeProse(header)), " "] : []), question),
    ...rows,
    ...(freeText ? [words] : []),
  );
  const read = () => {
    const selected = options.flatMap(({ label }, index) => (inputs[index]?.checked ? [label] : []));
    const text = words.value.trim();
    return { ...(selected.length > 0 && { selected }), ...(text && { text }) };
  };
  return { field, read };
}

/**
 * @param {boolean} multiple
 * @param {string} name
 */
function choice(multiple, name) {
  const input = el("input", { type: multiple ? "checkbox" : "radio" });
  input.name = name;
  return input;
}

/**
 * @param {HTMLElement} input
 * @param {string} label
 * @param {string} [description]
 */
function optionRow(input, label, description) {
  const about = description ? [el("span", { class: "about" }, escapeProse(description))] : [];
  return el(
    "label",
    { class: "option" },
    input,
    el("span", {}, el("bdi", {}, escapeProse(label)), ...about),
  );
}

/**
 * @param {HTMLFormElement} form
 * @returns {Draft}
 */
export function readDraft(form) {
  const fields = fieldsOf(form);
  const words = fields.map((field) => {
    if (!isBox(field)) return field.value.trim();
    return field.checked ? (field.parentElement?.textContent ?? "") : "";
  });
  return {
    fields: fields.map((field) => (isBox(field) ? field.checked : field.value)),
    words: words.filter(Boolean).join("\n"),
    focus: fields.findIndex((field) => field === document.activeElement),
  };
}

/**
 * Write a draft into a new form for the same call.
 *
 * @param {HTMLFormElement} form
 * @param {Draft} draft
 */
export function restoreDraft(form, draft) {
  const fields = fieldsOf(form);
  fields.forEach((field, index) => {
    const value = draft.fields[index];
    if (typeof value === "string") field.value = value;
    else if (isBox(field)) field.checked = value === true;
  });
  // the focus went with the form, unless a person has put it elsewhere since
  if (document.activeElement === document.body) fields[draft.focus]?.focus();
}

/**
 * @param {HTMLFormElement} form
 * @returns {(HTMLInputElement | HTMLTextAreaElement)[]}
 */
function fieldsOf(form) {
  return [...form.querySelectorAll("input, textarea")].flatMap((field) =>
    field instanceof HTMLInputElement || field instanceof HTMLTextAreaElement ? [field] : [],
  );
}

/**
 * @param {HTMLInputElement | HTMLTextAreaElement} field
 * @returns {field is HTMLInputElement}
 */
function isBox(field) {
  return field.type === "checkbox" || field.type === "radio";
}

/**
 * @param {() => void} onSubmit
 * @param {...HTMLElement} children
 */
function form(onSubmit, ...children) {
  const made = el("form", { class: "answer-form" }, ...children);
  made.addEventListener("submit", (event) => {
    event.preventDefault();
    onSubmit();
  });
  return made;
}

/**
 * @param {string} text
 * @param {string} [more] classes
 */
function submit(text, more = "") {
  return el("button", { class: `button small ${more}`, type: "submit" }, text);
}

/**
 * @param {string} label
 * @param {number} rows
 */
function textarea(label, rows) {
  const words = el("textarea", { label });
  words.rows = rows;
  return words;
}
