/** The history of a conversation: its pages, and its messages as a chat shows them. */
export type Client = import("./client.js").Client;
export type Event = import("./events.js").Event;
export type Message = import("./messages.js").Message;
export type Exchange = import("./thread.js").Exchange;
export type Page = {
    first: number;
    messages: Message[];
    next: Message | undefined;
};
/**
 * @typedef {{first: number, messages: Message[], next: Message | undefined}} Page messages from the
 *   position `first` on, and the one behind them, if it was asked for
 */
/**
 * Read the messages before a position, so many that they begin with one of a user.
 *
 * @param {Client} client
 * @param {string} conversationId
 * @param {number} end the position
 * @param {import("./client.js").RequestOptions & {withNext?: boolean}} options
 * @returns {Promise<Page>}
 */
export declare function readBefore(client: Client, conversationId: string, end: number, { withNext, ...options }: import("./client.js").RequestOptions & {
    withNext?: boolean;
}): Promise<Page>;
/**
 * Read the newest messages, and those that were posted for the run in progress: its events have the
 * rest.
 *
 * @param {Client} client
 * @param {string} conversationId
 * @param {import("./client.js").ConversationView} view
 * @param {import("./client.js").RequestOptions} options
 * @returns {Promise<Page & {end: number, posted: Message[]}>}
 */
export declare function readNewest(client: Client, conversationId: string, { running, messageCount }: import("./client.js").ConversationView, options: import("./client.js").RequestOptions): Promise<Page & {
    end: number;
    posted: Message[];
}>;
/**
 * @param {{id: string, content: import("./client.js").UserMessage["content"]}} message
 * @returns {import("./state.js").UserEntry}
 */
export declare function entryOf({ id, content }: {
    id: string;
    content: import("./client.js").UserMessage["content"];
}): import("./state.js").UserEntry;
/** @param {import("./client.js").UserMessage["content"]} content */
export declare function textOf(content: import("./client.js").UserMessage["content"]): string;
/**
 * @param {Message[]} messages
 * @returns {Exchange["asked"]}
 */
export declare function askedIn(messages: Message[]): Exchange["asked"];
/**
 * @param {{toolCallId: string, content: unknown, isError: boolean, synthetic?:
 *   import("./events.js").Synthetic}} result
 * @returns {Event}
 */
export declare function resultEvent(result: {
    toolCallId: string;
    content: unknown;
    isError: boolean;
    synthetic?: import("./events.js").Synthetic;
}): Event;
/**
 * @param {Message} message of the history
 * @param {boolean} isLast whether it is the last answer of its run
 * @returns {Event[]} the events of an answer that show it
 */
export declare function eventsOf(message: Message, isLast: boolean): Event[];
