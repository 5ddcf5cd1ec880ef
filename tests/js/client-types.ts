/** Compiled, never run: what a TypeScript program may write against the package. */

import {
  Answer,
  Chat,
  Client,
  PassbackError,
  RunFailed,
  escapeInvisible,
  escapeProse,
  formatArguments,
  readQuestions,
  reword,
} from "passback";
import type {
  Answers,
  Approval,
  BranchPoint,
  FoundMessage,
  Reworded,
  MessageContext,
  Call,
  ClientTools,
  ConversationPage,
  ChatStatus,
  Decision,
  Event,
  Left,
  ListedConversation,
  Message,
  NamedTool,
  Questions,
  SendOptions,
  ShownArguments,
  TraceStep,
  Usage,
  UsageEvent,
} from "passback";
import { useChat } from "passback/react";
import { createChat } from "passback/svelte";
import { useChat as useVueChat } from "passback/vue";

const tools: ClientTools = {
  add: {
    title: "Add",
    parameters: { type: "object" },
    needsApproval: ({ a }: { a: number }) => a > 1,
    execute: async ({ a, b }: { a: number; b: number }, { signal }) =>
      signal.aborted ? null : a + b,
  },
  ask_user: {
    execute: ({ questions }: Questions): Answers => ({
      answers: questions.map(({ options = [] }) => ({ selected: [options[0]?.label ?? ""] })),
    }),
  },
  later: { execute: "later" },
};
const context: MessageContext = {
  structuredData: [{ open: 1 }],
  intent: "to remind",
  constraints: ["in euros"] as const,
  instructions: "Be brief.",
  outputSchema: { type: "object", required: ["open"] },
};
const options: SendOptions = {
  ...context,
  agentId: "sales",
  onBusy: "enqueue",
  onDisconnect: "cancel",
  include: ["usage", "something of tomorrow"],
};

export async function main(
  client = new Client({ url: "http://x", tools, approve: (call) => call.name === "add" }),
) {
  const sending = client.send(
    [
      {
        role: "user",
        id: "m1",
        content: [
          { type: "text", text: "hi" },
          { type: "image", url: "data:," },
        ],
      },
    ],
    options,
  );
  const answer = new Answer();
  for await (const event of sending) {
    answer.add(event);
    show(event);
  }
  const id: string = sending.conversationId;
  const left: Left | null = sending.left;
  const output: unknown = answer.output;
  const used: Usage | null = answer.usage;
  const each: readonly UsageEvent[] = answer.modelCalls;
  const model: string | undefined = answer.model;
  log.push(`${used?.outputTokens} of ${each.length}, ${each[0]?.parentToolCallId}`);
  void [left?.tokens?.toFixed(), output, model];
  const done: boolean = await sending.cancel();
  const { owed, plan = [], usage } = await client.conversation(id);
  const { conversations, next }: ConversationPage = await client.conversations({ search: "a" });
  const rest = await client.conversations({ after: next, limit: 1 });
  const listed: ListedConversation[] = [...conversations, ...rest.conversations];
  const title: string | undefined = (await client.rename(id, "A page")).title;
  log.push(`${title}`, ...listed.map((each) => `${each.title} ${each.status} ${each.owed}`));
  const [message] = (await client.messages(id)).messages;
  log.push(
    ...plan.map(({ content, status }) => `${status} ${content}`),
    `${usage?.inputTokens}`,
    ...(message ? [saidBy(message)] : []),
    ...answer.calls.map(within),
  );
  return [done, owed.map((call) => call.arguments.length), await client.resume(id).text()];
}

export async function branch(client: Client, id: string): Promise<string> {
  const branches: BranchPoint[] = (await client.conversation(id)).branches ?? [];
  const nowhere: BranchPoint = { after: "", versions: [], current: null };
  const [{ after: place, versions, current } = nowhere] = branches;
  const { message, after }: FoundMessage = await client.findMessage(id, current ?? "");
  const { content, ...additions }: Reworded = reword(message, "other words");
  const edited = { role: "user", content } as const;
  await client.send(edited, { ...additions, conversationId: id, after, onBusy: "enqueue" }).text();
  await client.regenerate(id, place ?? "", { include: ["usage"], onBusy: "interrupt" }).text();
  const { queued } = await client.switchBranch(id, versions[0] ?? "");
  const copy = await client.fork(id, { after: message.id, conversationId: "copy" });
  // @ts-expect-error another answer needs the message that is answered
  void client.regenerate(id);
  // @ts-expect-error an answer to the same message has its additions already
  void client.regenerate(id, after, { intent: "to remind" });
  return [copy.id, ...queued].join();
}

function show(event: Event): string {
  switch (event.type) {
    case "text":
      return event.content;
    case "tool-call-start":
      return event.parentToolCallId ?? event.toolCallName;
    case "agent-text":
      return `${event.parentToolCallId}: ${event.delta}`;
    case "tool-progress":
      return event.text;
    case "plan":
      return event.entries
        .map(({ content, priority, status }) => [content, priority, status].join())
        .join();
    case "usage":
      return [event.outputTokens, event.estimated, event.left?.turns].join();
    case "tool-result":
      return event.synthetic === "denied"
        ? "denied"
        : `${event.isError ? "Error: " : ""}${event.result}`;
    case "output":
      return String(event.value);
    case "interrupt":
      return `${event.reason} ${event.payload.toolCallName ?? event.id}`;
    case "call-elsewhere":
      return event.state === "claimed" ? event.toolCallId : "";
    case "client-decision":
      return event.approved ? "" : event.reason;
    case "run-end":
      return event.reason ?? event.outcome;
    default:
      return event.cursor;
  }
}

const log: string[] = [];

function saidBy(message: Message): string {
  if (message.role === "child") return saidBy(message.message);
  if (message.role === "approval") return `${message.toolCallId} ${message.approved}`;
  if (message.role === "tool") return message.synthetic ?? message.toolCallId;
  return message.role === "user"
    ? (message.agentId ?? message.intent ?? message.constraints?.join() ?? message.id)
    : message.id;
}

function within({ name, calls = [], agentText = "", progress = "", synthetic = "" }: Call): string {
  return [name, agentText, progress, synthetic, ...calls.map(within)].join();
}

export function told(error: unknown): number | null {
  if (error instanceof RunFailed) return error.retryAfter;
  return error instanceof PassbackError ? error.status : null;
}

const steps: TraceStep[] = [];
const frames = () => steps.flatMap((step) => (step.kind === "frame" ? [step.data.length] : []));
export const traced = new Client({
  url: "http://x",
  unknownTools: "leave",
  trace: (step) => void steps.push(step),
});
export const dropped: boolean = traced.send("hi").reconnect() && frames().length > 0;

const decision: Decision = { id: "call_1", approved: false, reason: "no", always: true };
const approval = async (server: boolean): Promise<Approval> =>
  server ? { approved: true, always: true } : "no";
export const asking = new Client({
  url: "http://x",
  claims: false,
  approve: ({ server }) => approval(server),
  limits: { claimSeconds: 10 },
});
export const decided: Promise<string> = asking
  .decide("c", [decision], { include: ["usage"] })
  .text();

// @ts-expect-error a decision says yes or no
void asking.decide("c", { id: "call_1" });
// @ts-expect-error constraints are a list
void new Client({ url: "http://x" }).send("hi", { constraints: "in euros" });
// @ts-expect-error it belongs to the post with the user's words
void asking.decide("c", { id: "call_1", approved: true }, { outputSchema: {} });
// @ts-expect-error there is no such policy
void new Client({ url: "http://x" }).send("hi", { onBusy: "sometimes" });
const list: NamedTool[] = [{ name: "add", execute: ({ a, b }: { a: number; b: number }) => a + b }];
export const listed = new Client({
  url: "http://x",
  tools: [...list, { name: "later", execute: "later" }],
  retry: { attempts: 20 },
});
// @ts-expect-error a tool of a list has a name
void new Client({ url: "http://x", tools: [{ execute: "later" }] });
// @ts-expect-error a tool does something
void new Client({ url: "http://x", tools: { empty: {} } });

export function bindings(client: Client): () => void {
  const { state, send } = useVueChat(client, () => ({ conversationId: "c" }));
  const status: ChatStatus = state.value.status;
  void send(status);
  const chat = createChat(client, { live: false });
  void chat.loadOlder();
  return chat.subscribe(({ entries: [first] }) => first?.role === "user" && first.id);
}

export function Page({ client }: { client: Client }): string {
  const { entries, status, owed, error, send, edit, regenerate, decide, answer, stop } =
    useChat(client);
  void [stop, new Chat(client, { onDisconnect: "cancel" }).getSnapshot().status];
  void send(
    { role: "user", content: [{ type: "text", text: "hi" }] },
    { ...context, agentId: "sales", idempotencyKey: "mine" },
  );
  const { isBusy, hasOlder, refused, loadOlder, reload, switchVersion } = useChat(client);
  if (isBusy) void send("and this", { onBusy: "enqueue" }).then(() => undefined);
  if (hasOlder) void loadOlder().then(reload);
  const field: string = refused?.text ?? "";
  if (refused?.error.name === field) void send(refused.message);
  // @ts-expect-error there is no such status
  if (status === "running") void 0;
  for (const { ids, current } of entries[0]?.versions ?? []) {
    if (ids[0] !== current) void switchVersion(ids[0] ?? current);
  }
  const begun: Promise<Event | undefined> = client.send("hi").start();
  void begun;
  const [first] = entries;
  if (first?.role === "user") {
    void edit(first.id, "better", { onBusy: "interrupt" });
    void regenerate(first.id).then(() => undefined);
  }
  // @ts-expect-error a chat is one conversation
  void send("hi", { conversationId: "other" });
  for (const { id, kind, reason, arguments: text } of owed) {
    const { text: json, valid, repeated }: ShownArguments = formatArguments(text);
    const read: string = escapeInvisible(json) + escapeProse(reason ?? "");
    if (kind === "approval") {
      void decide({ id, approved: valid && repeated.length === 0 && read === json });
    } else {
      void answer(id, {
        answers: (readQuestions(text) ?? []).map(({ freeText }) =>
          freeText ? { text: "yes" } : {},
        ),
      } satisfies Answers);
    }
  }
  const shown = entries.map((entry) =>
    entry.role === "user"
      ? (entry.parts?.length ?? entry.text)
      : [entry.output, entry.calls.length],
  );
  return error?.message ?? `${status}: ${shown.join()}`;
}
