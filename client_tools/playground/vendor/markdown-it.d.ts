export { default } from "markdown-it";
export type { Env, MarkdownIt, StateInline, Token } from "markdown-it";
