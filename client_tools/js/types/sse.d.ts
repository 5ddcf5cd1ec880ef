/**
 * Reads a server-sent event stream by the rules of the WHATWG HTML standard, one chunk of bytes at a time.
 *
 * A block without `data` dispatches nothing but still moves the last event id, and a block that the end of the
 * stream cut short is never seen.
 */
export type SseEvent = {
    /**
     * the last event id when the event was dispatched, "" when there was none
     */
    id: string;
    /**
     * its type, "message" when the stream names none
     */
    event: string;
    /**
     * its data lines, joined by LF
     */
    data: string;
};
/**
 * @typedef {object} SseEvent
 * @property {string} id the last event id when the event was dispatched, "" when there was none
 * @property {string} event its type, "message" when the stream names none
 * @property {string} data its data lines, joined by LF
 */
export declare class SseDecoder {
    #private;
    /** The place to resume after: the id of the last finished block. */
    lastEventId: string;
    /** Milliseconds that the server asks to wait before a reconnect, null when it did not say.
     * @type {number | null} */
    retry: number | null;
    /** @param {number} maxChars characters that one unfinished event may hold */
    constructor(maxChars: number);
    /**
     * @param {Uint8Array} bytes what one read brought, cut anywhere
     * @returns {SseEvent[]} the events that these bytes complete
     * @throws {LimitExceeded} an event is too large
     */
    feed(bytes: Uint8Array): SseEvent[];
}
