/** The part of the library that the page uses. */

/** Receives the tokens of a text, instead of HTML. */
export interface Emitter {
  addText(text: string): void;
  startScope(scope: string): void;
  endScope(): void;
  openNode(scope: string): void;
  closeNode(): void;
  __addSublanguage(emitter: Emitter, name: string): void;
  finalize(): void;
  toHTML(): string;
}

declare const hljs: {
  configure(options: { __emitter: new () => Emitter }): void;
  getLanguage(name: string): object | undefined;
  highlight(
    code: string,
    options: { language: string; ignoreIllegals: boolean },
  ): { _emitter: Emitter; errorRaised?: Error };
};
export default hljs;
