/** Branches of a conversation: find a message, and write its text anew. */
export type MessageContext = import("./client.js").MessageContext;
export type Part = import("./client.js").Part;
export type Message = import("./messages.js").Message;
export type BranchPoint = {
    /**
     * the message before the place; null: the beginning
     */
    after: string | null;
    /**
     * the first message of each version, oldest first
     */
    versions: string[];
    /**
     * the one of them that is read; null: it is being written
     */
    current: string | null;
};
export type FoundMessage = {
    message: Message;
    /**
     * the id of the message before it, "" for the first
     */
    after: string;
};
export type Reworded = MessageContext & {
    content: string | Part[];
    agentId?: string;
};
/**
 * @param {import("./client.js").Client} client
 * @param {string} conversationId
 * @param {string} messageId
 * @param {import("./client.js").RequestOptions} [options]
 * @returns {Promise<FoundMessage>}
 * @throws {ApiError} `message_not_found`
 */
export declare function findMessage(client: import("./client.js").Client, conversationId: string, messageId: string, options?: import("./client.js").RequestOptions): Promise<FoundMessage>;
/**
 * @param {import("./client.js").Client} client
 * @param {string} conversationId
 * @param {[number, number]} range the number of messages to skip, and the end
 * @param {import("./client.js").RequestOptions} [options]
 * @returns {Promise<Message[]>} fewer if the conversation has become shorter
 */
export declare function readBetween(client: import("./client.js").Client, conversationId: string, [start, end]: [number, number], options?: import("./client.js").RequestOptions): Promise<Message[]>;
/**
 * Write the text of a user's message anew: its attachments and other parts, its additions and its
 * agent stay.
 *
 * @param {Message} message of the history
 * @param {string} text
 * @returns {Reworded} the content of the new message, and options of the `send` that posts it
 */
export declare function reword(message: Message, text: string): Reworded;
