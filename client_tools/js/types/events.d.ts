/** The events of a run, as `send` yields them, and their cursors. */
export type Place = {
    /**
     * its place in the run's log, to resume from; "" for events without a
     * place
     */
    cursor: string;
    runId: string | null;
};
export type Nestable = {
    /**
     * the call that the sub-agent works on; absent for the agent
     * itself
     */
    parentToolCallId?: string;
};
export type TextEvent = {
    type: "text";
    content: string;
} & Place;
export type AgentTextEvent = {
    type: "agent-text";
    parentToolCallId: string;
    delta: string;
} & Place;
export type ReasoningEvent = {
    type: "reasoning";
    delta: string;
} & Nestable & Place;
export type MessageEvent = {
    type: "message";
    messageId: string;
    startedAt?: string;
} & Nestable & Place;
export type UsageEvent = {
    type: "usage";
    left?: Left;
    model?: string;
    contextUsed?: number;
    contextWindow?: number;
} & Usage & Nestable & Place;
export type ContextEvent = {
    type: "context";
    used: number;
    window?: number;
    step?: "snip" | "micro" | "summary" | "cut" | (string & {});
    before?: number;
} & Nestable & Place;
export type PlanEvent = {
    type: "plan";
    entries: PlanEntry[];
} & Nestable & Place;
export type StateEvent = {
    type: "state";
    values: Record<string, unknown>;
    removed: string[];
} & Nestable & Place;
export type OutputEvent = {
    type: "output";
    value: unknown;
} & Place;
export type ToolCallStartEvent = {
    type: "tool-call-start";
    toolCallId: string;
    toolCallName: string;
    title?: string;
    kind?: ToolKind;
} & Nestable & Place;
export type ToolCallArgsEvent = {
    type: "tool-call-args";
    toolCallId: string;
    delta: string;
} & Nestable & Place;
export type ToolCallEndEvent = {
    type: "tool-call-end";
    toolCallId: string;
} & Nestable & Place;
export type ToolBeginEvent = {
    type: "tool-begin";
    toolCallId: string;
    locations?: Location[];
} & Nestable & Place;
export type ToolProgressEvent = {
    type: "tool-progress";
    toolCallId: string;
    text: string;
} & Nestable & Place;
export type ToolResultEvent = {
    type: "tool-result";
    toolCallId: string;
    result: string;
    isError?: boolean;
    synthetic?: Synthetic;
    durationMs?: number;
} & Nestable & Place;
export type ClientToolResultEvent = {
    type: "client-tool-result";
    toolCallId: string;
    toolCallName: string;
    content: unknown;
    isError: boolean;
    synthetic?: Synthetic;
} & Place;
export type ClientDecisionEvent = {
    type: "client-decision";
    toolCallId: string;
    toolCallName: string;
    approved: boolean;
    reason: string;
} & Place;
export type CallElsewhereEvent = {
    type: "call-elsewhere";
    toolCallId: string;
    toolCallName: string;
    state: "claimed" | "answered";
} & Place;
export type ClientEvent = Omit<ClientToolResultEvent, keyof Place> | Omit<ClientDecisionEvent, keyof Place> | Omit<CallElsewhereEvent, keyof Place>;
export type InterruptEvent = {
    type: "interrupt";
    id: string;
    reason: string;
    payload: InterruptPayload;
} & Place;
export type OwedEvent = {
    type: "owed";
    toolCalls: OwedCall[];
} & Place;
export type RunQueuedEvent = {
    type: "run-queued";
} & Place;
export type RunStartEvent = {
    type: "run-start";
} & Place;
export type RunEndEvent = {
    type: "run-end";
    outcome: "completed" | "handed-back" | "cancelled" | "failed";
    reason?: Reason;
    model?: string;
} & Place;
export type Reason = "end_turn" | "max_tokens" | "max_turns" | "refusal" | "budget" | (string & {});
export type Synthetic = "superseded" | "interrupted" | "invalid" | "denied" | "timeout" | "unanswered" | (string & {});
export type ToolKind = "read" | "edit" | "delete" | "move" | "search" | "execute" | "think" | "fetch" | (string & {});
export type RewindEvent = {
    type: "rewind";
    to: string;
} & Place;
export type PostedEvent = {
    type: "posted";
    first: number;
    messages: import("./messages.js").Message[];
} & Place;
export type SwitchedEvent = {
    type: "switched";
    message: string;
} & Place;
export type DeletedEvent = {
    type: "deleted";
} & Place;
export type WatchingEvent = {
    type: "watching";
} & Place;
export type WatchEvent = Event | PostedEvent | SwitchedEvent | DeletedEvent | WatchingEvent | (ErrorEvent & Place);
export type Event = TextEvent | AgentTextEvent | ReasoningEvent | MessageEvent | UsageEvent | OutputEvent | ContextEvent | PlanEvent | StateEvent | ToolCallStartEvent | ToolCallArgsEvent | ToolCallEndEvent | ToolBeginEvent | ToolProgressEvent | ToolResultEvent | ClientToolResultEvent | ClientDecisionEvent | CallElsewhereEvent | InterruptEvent | OwedEvent | RunQueuedEvent | RunStartEvent | RunEndEvent | RewindEvent;
export type Usage = {
    inputTokens: number;
    outputTokens: number;
    cachedTokens: number;
    reasoningTokens: number;
    /**
     * an answer was cut off before the provider had counted it
     */
    estimated?: true;
};
export type Left = {
    /**
     * model calls of this run
     */
    turns?: number;
    /**
     * of input and output together
     */
    tokens?: number;
    /**
     * of work
     */
    seconds?: number;
    /**
     * in the currency of the server's prices
     */
    cost?: number;
};
export type Location = {
    path: string;
    line?: number;
};
export type PlanEntry = {
    content: string;
    priority: "high" | "medium" | "low" | (string & {});
    status: "pending" | "in_progress" | "completed" | (string & {});
};
export type OwedCall = {
    id: string;
    name: string;
    /**
     * JSON, as text
     */
    arguments: string;
    /**
     * the kind of answer: the
     * result of a client's tool, a decision on a server's tool, a person's answers to the questions
     * in `arguments`
     */
    kind: "tool_result" | "approval" | "question" | (string & {});
    /**
     * reason of an approval
     */
    reason?: string;
    /**
     * the call that the sub-agent which made this call works on
     */
    parentToolCallId?: string;
    /**
     * end of the time to answer, RFC 3339 in UTC; only from
     * `client.conversation`
     */
    deadline?: string | null;
    /**
     * end of a client's claim, RFC 3339 in UTC; only from
     * `client.conversation`
     */
    claimedUntil?: string | null;
};
export type InterruptPayload = {
    /**
     * "approval"
     */
    kind?: string;
    toolCallId?: string;
    toolCallName?: string;
    /**
     * JSON, as text
     */
    arguments?: string;
};
export type ErrorEvent = {
    type: "error";
    error: string;
    code: string;
    retryable: boolean;
    retryAfter?: number;
};
/**
 * @param {string} data of one frame
 * @param {Place} place
 * @returns {Exclude<WatchEvent, WatchingEvent>} unknown types are passed on
 * @throws {ProtocolError}
 */
export declare function readEvent(data: string, place: Place): Exclude<WatchEvent, WatchingEvent>;
/**
 * @param {unknown} value
 * @returns {OwedCall[]}
 * @throws {ProtocolError}
 */
export declare function readOwed(value: unknown): OwedCall[];
/**
 * @param {string} cursor
 * @returns {{run: string, place: [number, number, number]} | null} null if it is not a cursor
 */
export declare function readCursor(cursor: string): {
    run: string;
    place: [number, number, number];
} | null;
/**
 * @param {string} cursor
 * @param {string} to
 * @returns {boolean} whether the first is of the same run as the second, and after it
 */
export declare function isBehind(cursor: string, to: string): boolean;
