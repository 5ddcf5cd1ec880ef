import { Client, tool, type ResultOf } from "passback";
import { useChat } from "passback/react";
import { StrictMode, type FormEvent } from "react";
import { createRoot } from "react-dom/client";
import { z } from "zod";

const setColor = tool({
  description: "Set the color of the page",
  parameters: z.object({ color: z.enum(["blue", "red"]) }),
  execute: ({ color }) => {
    document.body.style.background = color;
    return { shown: color };
  },
});
const shown: ResultOf<typeof setColor>["shown"] = "blue";
const client = new Client({ tools: { "set-color": setColor } });

function Page() {
  const { entries, error, send } = useChat(client);
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    void send(String(new FormData(event.currentTarget).get("text")));
  };
  return (
    <main>
      {entries.map((entry, index) => (
        <p key={index} className={entry.role}>
          {entry.text}
        </p>
      ))}
      {error && <p role="alert">{error.message}</p>}
      <form onSubmit={submit}>
        <input name="text" aria-label="Message" placeholder={`set-color to ${shown}`} />
        <button>Send</button>
      </form>
    </main>
  );
}

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <Page />
  </StrictMode>,
);
