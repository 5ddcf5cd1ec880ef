/**
 * A page with the AG-UI runtime of the published assistant-ui, as its documentation has it.
 * `window.startThread({ url, threadId })` shows it.
 */

import { HttpAgent } from "@ag-ui/client-0";
import {
  AssistantRuntimeProvider,
  ComposerPrimitive,
  ExportedMessageRepository,
  MessagePrimitive,
  ThreadPrimitive,
  useAssistantTool,
} from "@assistant-ui/react";
import { fromAgUiMessages, useAgUiRuntime } from "@assistant-ui/react-ag-ui";
import { useMemo, useState } from "react";
import { createRoot } from "react-dom/client";

function SetColor() {
  useAssistantTool({
    toolName: "set-color",
    description: "Sets the colour of the page.",
    parameters: { type: "object", properties: { color: { type: "string" } }, required: ["color"] },
    execute: async ({ color }) => {
      document.body.style.background = color;
      return `it is ${color}`;
    },
  });
  return null;
}

const Words = () => (
  <MessagePrimitive.Parts components={{ Text: ({ text }) => <p>{text}</p>, Reasoning: () => null }} />
);
const User = () => (
  <article aria-label="user">
    <Words />
  </article>
);
const Assistant = () => (
  <article aria-label="assistant">
    <Words />
    <MessagePrimitive.Error>
      <p role="alert">failed</p>
    </MessagePrimitive.Error>
  </article>
);

/** The stored thread: a request without messages is answered with it. */
function historyOf(options) {
  return {
    async load() {
      const agent = new HttpAgent(options);
      await agent.runAgent();
      return ExportedMessageRepository.fromArray(fromAgUiMessages(agent.messages));
    },
    async append() {}, // the server has it
  };
}

function Page(options) {
  const agent = useMemo(() => new HttpAgent(options), []);
  const history = useMemo(() => historyOf(options), []);
  const [problem, setProblem] = useState("");
  const runtime = useAgUiRuntime({
    agent,
    adapters: { history },
    onError: (error) => setProblem(error.message),
  });
  return (
    <AssistantRuntimeProvider runtime={runtime}>
      <SetColor />
      <ThreadPrimitive.Root>
        <ThreadPrimitive.Messages
          components={{ UserMessage: User, AssistantMessage: Assistant }}
        />
        <ThreadPrimitive.If running>
          <output>running</output>
        </ThreadPrimitive.If>
        <ThreadPrimitive.If running={false}>
          <output>ready</output>
        </ThreadPrimitive.If>
        <ComposerPrimitive.Root>
          <ComposerPrimitive.Input aria-label="Message" />
          <ComposerPrimitive.Send>Send</ComposerPrimitive.Send>
        </ComposerPrimitive.Root>
      </ThreadPrimitive.Root>
      <p role="alert">{problem}</p>
    </AssistantRuntimeProvider>
  );
}

window.startThread = (options) =>
  createRoot(document.getElementById("root")).render(<Page {...options} />);
