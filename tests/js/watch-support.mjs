/** The stream of a conversation, as a server sends it. */

export const ENDED = { type: "run-end", outcome: "completed", reason: "end_turn" };

/** @returns {{id?: string, data: string}} a frame; null: one without an id, as of no run */
export function frame(run, number, event) {
  const data = JSON.stringify(event);
  return run === null ? { data } : { id: `${run}.1-${number}`, data };
}

/** What a run begins with: the messages that were posted for it, and its start. */
export function begins(run, number, first, ...messages) {
  return [
    frame(null, 0, { type: "posted", runId: run, first, messages }),
    frame(run, number, { type: "run-start" }),
  ];
}

/**
 * Answers with the frames that follow the client's place, as the server does.
 *
 * @param {{id?: string, data: string}[]} frames
 * @param {"open" | "cut" | "end"} end what becomes of the connection
 * @param {string} [run] the run, if the stream is of one run
 */
export function serve(frames, end = "open", run) {
  return (response, request) => {
    response.writeHead(200, {
      "Content-Type": "text/event-stream",
      "X-Conversation-Id": "c",
      ...(run && { "X-Run-Id": run }),
    });
    const place = frames.findIndex(({ id }) => id && id === request.headers["last-event-id"]);
    const text = frames
      .slice(place + 1)
      .map(({ id, data }) => `${id ? `id: ${id}\n` : ""}data: ${data}\n\n`)
      .join("");
    response.write(`: open\n\n${text}`, () => {
      if (end === "cut") response.destroy();
      else if (end === "end") response.end();
    });
  };
}
