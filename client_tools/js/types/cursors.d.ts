/** Places in a run's log: `<run>.<epoch>-<number>`, with `~<n>` at the end where one event has several frames. */
/**
 * @param {string} cursor
 * @returns {{run: string, place: [number, number, number]} | null} null when it is no cursor
 */
export declare function readCursor(cursor: string): {
    run: string;
    place: [number, number, number];
} | null;
/**
 * @param {string} cursor
 * @param {string} to
 * @returns {boolean} whether the first is of the same run as the second, and behind it
 */
export declare function isBehind(cursor: string, to: string): boolean;
