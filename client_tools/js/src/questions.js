/** Questions of the built-in tool `ask_user`, and their answers. */

import { asRecord, parseJson } from "./json.js";

/**
 * @typedef {object} Question
 * @property {string} question
 * @property {string} [header] a short title; default: ""
 * @property {{label: string, description?: string}[]} [options] if there are none, the answer is
 *   free text
 * @property {boolean} [multiple] whether several options may be chosen; default: false
 * @property {boolean} [freeText] whether a text may be given instead of the options or with them;
 *   default: true
 */

/** @typedef {{questions: Question[]}} Questions the arguments of `ask_user` */

/**
 * @typedef {{selected?: string[], text?: string}} QuestionAnswer labels of options, and a text;
 *   empty: skipped
 */

/**
 * @typedef {{answers: QuestionAnswer[]}} Answers the result of `ask_user`: one answer for each
 *   question, in their order
 */

/**
 * Read the arguments of a call of `ask_user` for a form, with defaults filled in.
 *
 * @param {string} text the call's `arguments`
 * @returns {Required<Question>[] | null} null if they are not questions
 */
export function readQuestions(text) {
  const { questions } = asRecord(parseJson(text));
  if (!Array.isArray(questions) || questions.length === 0) return null;
  const read = questions.map(asRecord);
  if (read.some(({ question }) => typeof question !== "string")) return null;
  return read.map(({ question, header, options, multiple, freeText }) => {
    const known = optionsOf(options);
    return {
      question: String(question),
      header: typeof header === "string" ? header : "",
      options: known,
      multiple: multiple === true,
      freeText: freeText !== false || known.length === 0,
    };
  });
}

/**
 * @param {unknown} options
 * @returns {{label: string, description?: string}[]}
 */
function optionsOf(options) {
  if (!Array.isArray(options)) return [];
  return options.map(asRecord).flatMap(({ label, description }) => {
    if (typeof label !== "string") return [];
    return [typeof description === "string" ? { label, description } : { label }];
  });
}
