/** The worker of highlighter.js: finds the tokens of one text after the other. */

import hljs from "./vendor/highlight.js";

/** @typedef {import("./highlighter.js").Run} Run */

/** Collects what the library finds, in place of its HTML. */
class Runs {
  /** @type {Run[]} */
  runs = [];
  /** @type {string[]} */
  #scopes = [];

  /** @param {string} text */
  addText(text) {
    const scope = this.#scopes.at(-1) ?? "";
    const last = this.runs.at(-1);
    if (last?.[0] === scope) last[1] += text;
    else if (text) this.runs.push([scope, text]);
  }

  /** @param {string} scope */
  startScope(scope) {
    this.#scopes.push(scope);
  }

  endScope() {
    this.#scopes.pop();
  }

  /** @param {string} scope */
  openNode(scope) {
    this.startScope(scope);
  }

  closeNode() {
    this.endScope();
  }

  /** @param {Runs} emitter of a language within this one */
  __addSublanguage(emitter) {
    for (const run of emitter.runs) this.runs.push(run);
  }

  finalize() {}

  toHTML() {
    return "";
  }
}

hljs.configure({ __emitter: Runs });

addEventListener("message", ({ data: { code, language } }) => {
  if (!hljs.getLanguage(language)) return postMessage(null);
  const { _emitter, errorRaised } = hljs.highlight(code, { language, ignoreIllegals: true });
  const runs = errorRaised || !(_emitter instanceof Runs) ? null : _emitter.runs;
  postMessage(runs);
});
