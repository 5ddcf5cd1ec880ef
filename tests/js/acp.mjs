/**
 * Drives `passback acp` with the published client `@agentclientprotocol/sdk` through a pipe, and
 * prints what that client saw, as one line of JSON. The model's replies are the test's; each step
 * here names what it expects of them.
 *
 * Usage: node acp.mjs '{"command": [...], "cwd": "...", "folder": "..."}'
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { Readable, Writable } from "node:stream";

import { client, methods, ndJsonStream, PROTOCOL_VERSION } from "@agentclientprotocol/sdk";

const { command, cwd, folder } = JSON.parse(process.argv[2]);
const [program, ...rest] = command;
const agentProcess = spawn(program, rest, { cwd, stdio: ["pipe", "pipe", "inherit"] });
const ended = once(agentProcess, "exit");

/** Every message of both directions, in order. */
const frames = [];

/** Pass messages on, and keep them. */
function kept(isSent) {
  return new TransformStream({
    transform(message, controller) {
      frames.push({ isSent, message });
      controller.enqueue(message);
    },
  });
}

const pipe = ndJsonStream(Writable.toWeb(agentProcess.stdin), Readable.toWeb(agentProcess.stdout));
const outgoing = kept(true);
outgoing.readable.pipeTo(pipe.writable).catch(() => {});
const stream = { writable: outgoing.writable, readable: pipe.readable.pipeThrough(kept(false)) };

// ------------------------------------------------------------------ what the editor lends
const files = new Map();
const terminals = new Set();
let choice = "allow_once";
let waitsForever = false;
const updates = [];

/** Calls of `whenUpdated` that wait. */
const waiting = [];

/** Wait for an update that fits. */
function whenUpdated(fits) {
  return new Promise((resolve) => waiting.push({ fits, resolve }));
}

const app = client({ name: "editor" })
  .onNotification(methods.client.session.update, ({ params }) => {
    updates.push(params);
    for (const each of waiting) if (each.fits(params.update)) each.resolve(params);
  })
  .onRequest(methods.client.session.requestPermission, ({ params }) => {
    const { optionId } = params.options.find((each) => each.kind === choice);
    return { outcome: { outcome: "selected", optionId } };
  })
  .onRequest(methods.client.fs.readTextFile, ({ params }) => ({ content: files.get(params.path) }))
  .onRequest(methods.client.fs.writeTextFile, ({ params }) => {
    files.set(params.path, params.content);
    return {};
  })
  .onRequest(methods.client.terminal.create, () => {
    terminals.add("terminal-1");
    return { terminalId: "terminal-1" };
  })
  .onRequest(methods.client.terminal.output, () => ({
    output: "made\n",
    truncated: false,
    exitStatus: { exitCode: 0 },
  }))
  .onRequest(methods.client.terminal.waitForExit, () => ({ exitCode: 0 }))
  .onRequest(methods.client.terminal.kill, () => ({}))
  .onRequest(methods.client.terminal.release, ({ params }) => {
    terminals.delete(params.terminalId);
    return {};
  })
  .onRequest(methods.client.elicitation.create, ({ params }) => {
    const names = Object.keys(params.requestedSchema.properties);
    return { action: "accept", content: Object.fromEntries(names.map((name) => [name, "Well"])) };
  })
  .onRequest(
    "_passback/tool_call",
    (params) => params,
    ({ params, signal }) =>
      waitsForever
        ? new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)))
        : { content: `${params.name} is done` },
  );

// ------------------------------------------------------------------ the steps
/** The text that a session's agent has said since a place in `updates`. */
function textOf(sessionId, start) {
  return updates
    .slice(start)
    .filter((each) => each.sessionId === sessionId)
    .map(({ update }) => update)
    .filter((update) => update.sessionUpdate === "agent_message_chunk")
    .map((update) => update.content.text)
    .join("");
}

async function codeOf(promise) {
  try {
    return { result: await promise };
  } catch (error) {
    return { code: error.code, message: error.message };
  }
}

async function drive(agent) {
  const report = {};
  const mcpServers = [];
  const opened = await agent.request(methods.agent.initialize, {
    protocolVersion: PROTOCOL_VERSION,
    clientCapabilities: {
      fs: { readTextFile: true, writeTextFile: true },
      terminal: true,
      elicitation: { form: {} },
      session: { configOptions: { boolean: {} } },
    },
    clientInfo: { name: "editor", version: "1" },
  });
  report.opened = opened;
  for (const { id } of opened.authMethods) {
    await agent.request(methods.agent.authenticate, { methodId: id });
  }
  const tool = { name: "paint", description: "Paint it", parameters: { type: "object" } };
  const made = await agent.request(methods.agent.session.new, {
    cwd: folder,
    mcpServers,
    _meta: { passback: { tools: [tool] } },
  });
  const { sessionId } = made;

  const say = async (text, options) => {
    const start = updates.length;
    const prompt = [{ type: "text", text }];
    const asked = agent.request(methods.agent.session.prompt, { sessionId, prompt }, options);
    const answer = await codeOf(asked);
    const { stopReason } = answer.result ?? {};
    return { stopReason, code: answer.code, text: textOf(sessionId, start) };
  };

  // each of these is a reply, or more, of the test's model
  files.set(path.join(folder, "a.txt"), "red\n");
  report.text = await say("Hello");
  report.tools = await say("Do it all");
  choice = "reject_once";
  report.rejected = await say("Burn it");
  choice = "allow_once";

  const hasBegun = whenUpdated((update) => update.content?.text === "So ");
  const cancelled = say("Talk");
  await hasBegun;
  await agent.notify(methods.agent.session.cancel, { sessionId });
  report.cancelled = await cancelled;

  const abort = new AbortController();
  const begunAgain = whenUpdated((update) => update.content?.text === "So ");
  const aborted = say("Talk again", { cancellationSignal: abort.signal });
  await begunAgain;
  abort.abort();
  report.aborted = await aborted;

  waitsForever = true;
  const isPainting = whenUpdated((update) => update.status === "in_progress");
  const painting = say("Paint it for ever");
  await isPainting;
  await agent.notify(methods.agent.session.cancel, { sessionId });
  report.painting = await painting;
  waitsForever = false;

  await agent.request(methods.agent.session.setMode, { sessionId, modeId: "bypass" });
  const asked = { sessionId, configId: "mode", value: "accept_edits" };
  const changed = await agent.request(methods.agent.session.setConfigOption, asked);
  report.mode = changed.configOptions.find(({ id }) => id === "mode").currentValue;

  const listed = await agent.request(methods.agent.session.list, { cwd: folder });
  report.listed = listed.sessions.map((each) => each.sessionId === sessionId);
  const again = { sessionId, cwd: folder, mcpServers };
  await agent.request(methods.agent.session.resume, again);
  const start = updates.length;
  const loaded = await agent.request(methods.agent.session.load, again);
  report.loaded = { mode: loaded.modes.currentModeId, text: textOf(sessionId, start) };
  report.closed = await agent.request(methods.agent.session.close, { sessionId });
  report.deleted = await agent.request(methods.agent.session.delete, { sessionId });
  report.gone = await codeOf(agent.request(methods.agent.session.load, again));
  report.unknown = await codeOf(agent.request("session/burn", {}));
  report.session = sessionId;
  return report;
}

const report = await app.connectWith(stream, drive);
agentProcess.stdin.end();
const [exitCode] = await ended;
const left = { files: Object.fromEntries(files), terminals: [...terminals] };
console.log(JSON.stringify({ ...report, ...left, exitCode, frames }));
