/**
 * Decoder of server-sent events by the WHATWG HTML standard, one chunk of bytes at a time.
 *
 * A block without `data` dispatches nothing but sets the last event id; an unfinished block at the
 * end of the stream is dropped.
 */
export type SseEvent = {
    /**
     * the last event id when the event was dispatched, "" if there was none
     */
    id: string;
    /**
     * its type, "message" if the stream names none
     */
    event: string;
    /**
     * its data lines, joined by LF
     */
    data: string;
};
/**
 * @typedef {object} SseEvent
 * @property {string} id the last event id when the event was dispatched, "" if there was none
 * @property {string} event its type, "message" if the stream names none
 * @property {string} data its data lines, joined by LF
 */
export declare class SseDecoder {
    #private;
    /** The id of the last finished block, to resume after. */
    lastEventId: string;
    /** Milliseconds that the server asks to wait before a reconnect, if it does.
     * @type {number | null} */
    retry: number | null;
    /** Number of comments so far. */
    comments: number;
    /** @param {number} maxChars characters that one unfinished event may hold */
    constructor(maxChars: number);
    /**
     * @param {Uint8Array} bytes one chunk, split anywhere
     * @returns {SseEvent[]} the events that these bytes complete
     * @throws {LimitExceeded} if an event is too large
     */
    feed(bytes: Uint8Array): SseEvent[];
}
