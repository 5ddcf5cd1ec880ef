/** Client of passback, the agent server whose tools run in the client's hands. */
export { Answer } from "./answer.js";
export { reword } from "./branches.js";
export { Chat } from "./chat.js";
export { Client } from "./client.js";
export { isBehind } from "./events.js";
export { ApiError, ConnectionLost, CursorExpired, InvalidArgument, LimitExceeded, PassbackError, ProtocolError, RunFailed, } from "./errors.js";
export { readQuestions } from "./questions.js";
export { Sending } from "./sending.js";
export { tool } from "./tools.js";
export { escapeInvisible, escapeProse, formatArguments } from "./visible.js";
export { randomId } from "./wire.js";
export type BranchPoint = import("./branches.js").BranchPoint;
export type FoundMessage = import("./branches.js").FoundMessage;
export type Reworded = import("./branches.js").Reworded;
export type Call = import("./calls.js").Call;
export type MessageContext = import("./client.js").MessageContext;
export type AgentView = import("./client.js").AgentView;
export type ClientOptions = import("./client.js").ClientOptions;
export type ConversationPage = import("./client.js").ConversationPage;
export type ConversationView = import("./client.js").ConversationView;
export type DecideOptions = import("./client.js").DecideOptions;
export type Decision = import("./client.js").Decision;
export type ListedConversation = import("./client.js").ListedConversation;
export type MessagePage = import("./client.js").MessagePage;
export type Part = import("./client.js").Part;
export type RegenerateOptions = import("./client.js").RegenerateOptions;
export type ResumeOptions = import("./client.js").ResumeOptions;
export type RunView = import("./client.js").RunView;
export type SendOptions = import("./client.js").SendOptions;
export type ServerAgents = import("./client.js").ServerAgents;
export type ToolMessage = import("./client.js").ToolMessage;
export type UserMessage = import("./client.js").UserMessage;
export type WatchOptions = import("./client.js").WatchOptions;
export type Event = import("./events.js").Event;
export type Left = import("./events.js").Left;
export type Location = import("./events.js").Location;
export type OwedCall = import("./events.js").OwedCall;
export type PlanEntry = import("./events.js").PlanEntry;
export type Synthetic = import("./events.js").Synthetic;
export type ToolKind = import("./events.js").ToolKind;
export type Usage = import("./events.js").Usage;
export type UsageEvent = import("./events.js").UsageEvent;
export type WatchEvent = import("./events.js").WatchEvent;
export type Message = import("./messages.js").Message;
export type Limits = import("./options.js").Limits;
export type Retry = import("./options.js").Retry;
export type Answers = import("./questions.js").Answers;
export type Question = import("./questions.js").Question;
export type QuestionAnswer = import("./questions.js").QuestionAnswer;
export type Questions = import("./questions.js").Questions;
export type AssistantEntry = import("./state.js").AssistantEntry;
export type ChatOptions = import("./state.js").ChatOptions;
export type ChatSendOptions = import("./state.js").ChatSendOptions;
export type ChatState = import("./state.js").ChatState;
export type ChatStatus = import("./state.js").ChatStatus;
export type Refused = import("./state.js").Refused;
export type UserEntry = import("./state.js").UserEntry;
export type Versions = import("./state.js").Versions;
export type JsonSchema = import("./schemas.js").JsonSchema;
export type ToolParameters = import("./schemas.js").ToolParameters;
export type Approval = import("./tools.js").Approval;
export type ApprovalCall = import("./tools.js").ApprovalCall;
export type Approve = import("./tools.js").Approve;
export type CallContext = import("./tools.js").CallContext;
export type ClientTool = import("./tools.js").ClientTool;
export type ClientTools = import("./tools.js").ClientTools;
export type NamedTool = import("./tools.js").NamedTool;
export type Trace = import("./trace.js").Trace;
export type TraceStep = import("./trace.js").TraceStep;
export type ShownArguments = import("./visible.js").ShownArguments;
export type ArgumentsOf<T> = import("./tools.js").ArgumentsOf<T>;
export type ResultOf<T> = import("./tools.js").ResultOf<T>;
/**
 * @typedef {import("./branches.js").BranchPoint} BranchPoint
 * @typedef {import("./branches.js").FoundMessage} FoundMessage
 * @typedef {import("./branches.js").Reworded} Reworded
 * @typedef {import("./calls.js").Call} Call
 * @typedef {import("./client.js").MessageContext} MessageContext
 * @typedef {import("./client.js").AgentView} AgentView
 * @typedef {import("./client.js").ClientOptions} ClientOptions
 * @typedef {import("./client.js").ConversationPage} ConversationPage
 * @typedef {import("./client.js").ConversationView} ConversationView
 * @typedef {import("./client.js").DecideOptions} DecideOptions
 * @typedef {import("./client.js").Decision} Decision
 * @typedef {import("./client.js").ListedConversation} ListedConversation
 * @typedef {import("./client.js").MessagePage} MessagePage
 * @typedef {import("./client.js").Part} Part
 * @typedef {import("./client.js").RegenerateOptions} RegenerateOptions
 * @typedef {import("./client.js").ResumeOptions} ResumeOptions
 * @typedef {import("./client.js").RunView} RunView
 * @typedef {import("./client.js").SendOptions} SendOptions
 * @typedef {import("./client.js").ServerAgents} ServerAgents
 * @typedef {import("./client.js").ToolMessage} ToolMessage
 * @typedef {import("./client.js").UserMessage} UserMessage
 * @typedef {import("./client.js").WatchOptions} WatchOptions
 * @typedef {import("./events.js").Event} Event
 * @typedef {import("./events.js").Left} Left
 * @typedef {import("./events.js").Location} Location
 * @typedef {import("./events.js").OwedCall} OwedCall
 * @typedef {import("./events.js").PlanEntry} PlanEntry
 * @typedef {import("./events.js").Synthetic} Synthetic
 * @typedef {import("./events.js").ToolKind} ToolKind
 * @typedef {import("./events.js").Usage} Usage
 * @typedef {import("./events.js").UsageEvent} UsageEvent
 * @typedef {import("./events.js").WatchEvent} WatchEvent
 * @typedef {import("./messages.js").Message} Message
 * @typedef {import("./options.js").Limits} Limits
 * @typedef {import("./options.js").Retry} Retry
 * @typedef {import("./questions.js").Answers} Answers
 * @typedef {import("./questions.js").Question} Question
 * @typedef {import("./questions.js").QuestionAnswer} QuestionAnswer
 * @typedef {import("./questions.js").Questions} Questions
 * @typedef {import("./state.js").AssistantEntry} AssistantEntry
 * @typedef {import("./state.js").ChatOptions} ChatOptions
 * @typedef {import("./state.js").ChatSendOptions} ChatSendOptions
 * @typedef {import("./state.js").ChatState} ChatState
 * @typedef {import("./state.js").ChatStatus} ChatStatus
 * @typedef {import("./state.js").Refused} Refused
 * @typedef {import("./state.js").UserEntry} UserEntry
 * @typedef {import("./state.js").Versions} Versions
 * @typedef {import("./schemas.js").JsonSchema} JsonSchema
 * @typedef {import("./schemas.js").ToolParameters} ToolParameters
 * @typedef {import("./tools.js").Approval} Approval
 * @typedef {import("./tools.js").ApprovalCall} ApprovalCall
 * @typedef {import("./tools.js").Approve} Approve
 * @typedef {import("./tools.js").CallContext} CallContext
 * @typedef {import("./tools.js").ClientTool} ClientTool
 * @typedef {import("./tools.js").ClientTools} ClientTools
 * @typedef {import("./tools.js").NamedTool} NamedTool
 * @typedef {import("./trace.js").Trace} Trace
 * @typedef {import("./trace.js").TraceStep} TraceStep
 * @typedef {import("./visible.js").ShownArguments} ShownArguments
 */
/**
 * @template T
 * @typedef {import("./tools.js").ArgumentsOf<T>} ArgumentsOf
 */
/**
 * @template T
 * @typedef {import("./tools.js").ResultOf<T>} ResultOf
 */
