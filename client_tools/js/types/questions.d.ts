/** Questions of the built-in tool `ask_user`, and their answers. */
export type Question = {
    question: string;
    /**
     * a short title; default: ""
     */
    header?: string;
    /**
     * if there are none, the answer is
     * free text
     */
    options?: {
        label: string;
        description?: string;
    }[];
    /**
     * whether several options may be chosen; default: false
     */
    multiple?: boolean;
    /**
     * whether a text may be given instead of the options or with them;
     * default: true
     */
    freeText?: boolean;
};
export type Questions = {
    questions: Question[];
};
export type QuestionAnswer = {
    selected?: string[];
    text?: string;
};
export type Answers = {
    answers: QuestionAnswer[];
};
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
export declare function readQuestions(text: string): Required<Question>[] | null;
