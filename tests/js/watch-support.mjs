/** The stream of a conversation, as a server sends it. */

export const ENDED = { type: "run-end", outcome: "completed", reason: "end_turn" };

/** @returns {{id?: string, data: string}} a frame; null: one without an id, as of no run */
export function frame(run, number, event) {
  const data = JSON.stringify(event);
  return run === null ? { data } : { id: `${run}.1-${number}`, data };
}

/** The frames as they are on the wire. */
export function written(frames) {
  return frames.map(({ id, data }) => `${id ? `id: ${id}\n` : ""}data: ${data}\n\n`).join("");
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
    response.write(`: open\n\n${written(frames.slice(place + 1))}`, () => {
      if (end === "cut") response.destroy();
      else if (end === "end") response.end();
    });
  };
}

/** A conversation whose watchers get each frame as it is said. */
export function conversation() {
  const frames = [];
  const open = new Set();
  const places = [];
  const watched = (response, request) => {
    const place = request.headers["last-event-id"];
    places.push(place);
    serve([])(response, request);
    open.add(response);
    response.on("close", () => open.delete(response));
    const run = place?.replace(/\.\d+-\d+$/, "");
    const at = place?.endsWith(".0-0")
      ? frames.findIndex(({ data }) => JSON.parse(data).runId === run) - 1
      : frames.findIndex(({ id }) => id !== undefined && id === place);
    if (place !== undefined) response.write(written(frames.slice(at + 1)));
  };
  const say = (...list) => {
    frames.push(...list);
    for (const response of open) response.write(written(list));
  };
  const cut = () => {
    for (const response of open) response.destroy();
  };
  return { watched, say, cut, places, open };
}

/** The state of a chat once it is as a test wants it. */
export function when(chat, isSo) {
  return new Promise((resolve) => {
    const look = () => {
      if (!isSo(chat.getSnapshot())) return;
      leave();
      resolve(chat.getSnapshot());
    };
    const leave = chat.subscribe(look);
    look();
  });
}
