/** What the built-in tool `ask_user` asks a person, and what it is answered with. */
export type Question = {
    question: string;
    /**
     * without any, the answer is free text
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
     * whether a text of one's own may be given instead of the options or beside them; default: true
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
 * @property {{label: string, description?: string}[]} [options] without any, the answer is free text
 * @property {boolean} [multiple] whether several options may be chosen; default: false
 * @property {boolean} [freeText] whether a text of one's own may be given instead of the options or beside them; default: true
 */
/** @typedef {{questions: Question[]}} Questions the arguments of `ask_user` */
/** @typedef {{selected?: string[], text?: string}} QuestionAnswer labels of options, and a text; empty: passed over */
/** @typedef {{answers: QuestionAnswer[]}} Answers the result of `ask_user`: one answer for each question, in their order */
/**
 * Reads the arguments of a call of `ask_user` for a form, with the defaults filled in.
 *
 * @param {string} text the call's `arguments`
 * @returns {Required<Question>[] | null} null when they are no questions
 */
export declare function readQuestions(text: string): Required<Question>[] | null;
