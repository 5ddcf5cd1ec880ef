/** What a program gives, checked when it is given: a table says of each argument what it takes. */
export type Takes = [words: string, fits: (value: unknown) => boolean];
/**
 * Refuses options of a client of which one is not what it should be, or none that there is; what is undefined is not given.
 *
 * @param {unknown} options
 * @throws {InvalidArgument}
 */
export declare function checkOptions(options: unknown): void;
/**
 * @param {string} name
 * @param {import("./tools.js").ClientTool} tool
 * @throws {InvalidArgument}
 */
export declare function checkTool(name: string, { description, parameters, needsApproval }: import("./tools.js").ClientTool): void;
/**
 * @param {unknown} url
 * @returns {string} the address without what goes behind it
 * @throws {InvalidArgument} shows no text of it: it may hold a password
 */
export declare function addressOf(url: unknown): string;
