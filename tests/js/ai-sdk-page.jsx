/**
 * A page as the documentation of the AI SDK's wire has it, with `useChat` of the published package.
 * `window.startChat({ api, id })` shows it.
 */

import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithToolCalls } from "ai";
import { createRoot } from "react-dom/client";

const properties = { color: { type: "string" } };
const parameters = { type: "object", properties, required: ["color"] };
const tools = [{ name: "set-color", parameters }];

function Page({ id, api, stored }) {
  const { messages, sendMessage, regenerate, addToolOutput, status, error } = useChat({
    id,
    messages: stored,
    transport: new DefaultChatTransport({ api, body: { tools } }),
    resume: true,
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
    onToolCall({ toolCall: { toolName, toolCallId, input } }) {
      if (toolName !== "set-color") return;
      document.body.style.background = input.color;
      void addToolOutput({ tool: toolName, toolCallId, output: `it is ${input.color}` });
    },
  });
  const submit = (event) => {
    event.preventDefault();
    void sendMessage({ text: String(new FormData(event.target).get("words")) });
    event.target.reset();
  };
  const stop = () => fetch(`${api}/${encodeURIComponent(id)}/stop`, { method: "POST" });
  return (
    <main>
      {messages.map((message) => (
        <article key={message.id} aria-label={message.role}>
          {message.parts.map((part, at) => (part.type === "text" ? <p key={at}>{part.text}</p> : null))}
        </article>
      ))}
      <output>{status}</output>
      {error ? <p role="alert">{error.message}</p> : null}
      <form onSubmit={submit}>
        <input name="words" aria-label="Message" />
        <button>Send</button>
      </form>
      <button onClick={stop}>Stop</button>
      <button onClick={() => regenerate()}>Regenerate</button>
    </main>
  );
}

window.startChat = async (chat) => {
  const answer = await fetch(`${chat.api}/${encodeURIComponent(chat.id)}/messages`);
  const { messages } = await answer.json();
  createRoot(document.getElementById("root")).render(<Page {...chat} stored={messages} />);
};
