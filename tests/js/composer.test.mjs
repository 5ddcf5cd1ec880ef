/** The playground's attachments, choice of who answers, and usage, without a browser. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { MOST, objectionOf, refusalOf } from "../../client_tools/playground/attachments.js";
import { matching } from "../../client_tools/playground/commands.js";
import { readMessage } from "../../client_tools/playground/history.js";
import {
  bytesOf,
  formatBytes,
  kindOf,
  mediaOf,
  mediaTypeOf,
  postedName,
  readResult,
  savedName,
  shownName,
  sizeOf,
} from "../../client_tools/playground/parts.js";
import { Chosen, settle } from "../../client_tools/playground/picker.js";
import { Message, QueuedPosts } from "../../client_tools/playground/posts.js";
import { isPost } from "../../client_tools/playground/steps.js";
import { count, describe, emptyTally, sum } from "../../client_tools/playground/usage.js";

const PIXEL = "data:image/png;base64,iVBORw0KGgo=";
const IMAGE = { type: "image", url: PIXEL, mediaType: "image/png", name: "a.png" };
const BIDI = "\u202egnp.exe";

// ---------------------------------------------------------------- parts
test("a media type is one that a post may have", () => {
  const long = "x/" + "y".repeat(65);
  const types = ["image/PNG", "text/plain;charset=utf-8", "", "image", "a b/c", long];
  assert.deepEqual(types.map(mediaTypeOf), [
    ...["image/png", "text/plain"],
    ...Array(4).fill("application/octet-stream"),
  ]);
  const kinds = ["image/svg+xml", "audio/wav", "video/mp4", "imagery/x"].map(kindOf);
  assert.deepEqual(kinds, ["image", "audio", "file", "file"]);
});

test("the media of a message are its parts with an address", () => {
  const content = [
    { type: "text", text: "look" },
    { type: "image", url: PIXEL, name: "a.png" },
    { type: "file", url: "https://other.example/a", mediaType: "text/csv" },
    { type: "image", name: "without an address" },
    { type: "data", data: { type: "image" } },
    null,
  ];
  assert.deepEqual(mediaOf(content), [
    IMAGE,
    { type: "file", url: "https://other.example/a", mediaType: "text/csv", name: "" },
  ]);
  assert.deepEqual(mediaOf("data:image/png;base64,AAAA"), []);
});

test("only whole lines of a result that are data in base64 are media", () => {
  const media = (...found) =>
    found.map(([type, mediaType, url]) => ({ type, url, mediaType, name: "" }));
  const wav = "data:audio/wav;base64,AAAA";
  assert.deepEqual(readResult(`a\n${PIXEL}\n\n${wav}\nb`), {
    text: "a\n\nb",
    media: media(["image", "image/png", PIXEL], ["audio", "audio/wav", wav]),
  });
  const others = [
    "see data:image/png;base64,AAAA",
    "data:image/png;base64,AA\u202eAA",
    "data:image/png;base64,",
    "data:image/png,AAAA",
    "data:;base64,AAAA",
    "data:text/html;base64,AAAA<b>",
    "nothing",
  ];
  for (const text of others) assert.deepEqual(readResult(text), { text, media: [] });
});

test("bytes are those of the data, and what cannot be read has none", () => {
  assert.deepEqual(bytesOf("data:text/plain;base64,aGk="), new TextEncoder().encode("hi"));
  assert.deepEqual(bytesOf("data:text/plain,h%C3%A9"), new TextEncoder().encode("hé"));
  const broken = ["data:text/plain;base64,*", "data:text/plain,%E9", "https://a.example/"];
  for (const url of broken) assert.equal(bytesOf(url), null, url);
  const urls = ["aGk=", "aGkh", "aA==", ""].map((data) => `data:text/plain;base64,${data}`);
  assert.deepEqual(urls.map(sizeOf), [2, 3, 1, 0]);
  assert.deepEqual(["data:text/plain,abc", "https://a.example/"].map(sizeOf), [3, 0]);
});

test("a name is posted as the server takes it, and shown and saved without a trick", () => {
  const long = postedName("𝔘".repeat(10_000) + ".jpeg");
  assert.equal([...long].length, 256);
  assert.ok(long.endsWith("𝔘….jpeg"));
  assert.equal(postedName("a\ud800b"), "a\ufffdb");
  assert.equal(shownName({ name: BIDI, type: "file" }), "\\u202egnp.exe");
  assert.equal(shownName({ name: "", type: "audio" }), "Sound");
  const saved = [BIDI, "../../etc/passwd", "a\nb<c>.txt", "...", ""].map((name) =>
    savedName({ ...IMAGE, name }),
  );
  assert.deepEqual(saved, ["_gnp.exe", "_.._etc_passwd", "a_b_c_.txt", "image.png", "image.png"]);
  assert.equal(savedName({ type: "file", url: "", mediaType: "", name: "" }), "file");
});

test("sizes are for people", () => {
  const sizes = [0, 1, 999, 1000, 1049, 9960, 999_499, 999_500, 3_145_728].map(formatBytes);
  assert.deepEqual(sizes, [
    ...["0 bytes", "1 byte", "999 bytes", "1 kB", "1 kB", "10 kB", "999 kB", "1 MB", "3.1 MB"],
  ]);
});

// ---------------------------------------------------------------- limits
test("a file is refused if it is empty, too large beside the others, or one too many", () => {
  const limits = { attachmentBytes: 1000, bodyBytes: 1_000_000 };
  const file = (size, name = "a.png") => ({ name, size });
  assert.equal(refusalOf(file(1000), [], limits), "");
  assert.equal(refusalOf(file(400), [file(600)], limits), "");
  assert.equal(refusalOf(file(0), [], limits), "a.png is empty.");
  assert.equal(refusalOf(file(0, ""), [], null), "This file is empty.");
  assert.equal(
    refusalOf(file(1001), [], limits),
    "a.png (1 kB) is too large: a message takes 1 kB of files.",
  );
  assert.equal(
    refusalOf(file(401, BIDI), [file(600)], limits),
    "\\u202egnp.exe (401 bytes) is too large beside the others: a message takes 1 kB of files.",
  );
  // a small body leaves less room, because of base64
  const small = { attachmentBytes: 1_000_000, bodyBytes: 100_000 };
  assert.equal(refusalOf(file(58_616), [], small), "");
  assert.match(refusalOf(file(58_617), [], small), /too large: a message takes 59 kB of files/);
  assert.equal(refusalOf(file(64e6), [], null), "");
  assert.match(refusalOf(file(64e6 + 1), [], null), /too large: a message takes 64 MB of files/);
  const many = Array(MOST).fill(file(1));
  assert.equal(refusalOf(file(1), many.slice(1), null), "");
  assert.match(refusalOf(file(1), many, null), /a message has 50 files at most/);
});

test("what the model does not take is said with its name and the file's", () => {
  const model = { id: "x:blind", media: ["file"] };
  assert.equal(objectionOf([], model), "");
  assert.equal(objectionOf([IMAGE], null), "");
  assert.equal(objectionOf([{ type: "file", name: "a.txt" }], model), "");
  assert.equal(
    objectionOf([{ type: "file", name: "a.txt" }, IMAGE], model),
    "x:blind takes no images: remove a.png, or choose another model.",
  );
});

// ---------------------------------------------------------------- who answers
const AGENTS = [
  { id: "clerk", models: [{ id: "x:own" }, { id: "x:other" }], commands: [] },
  { id: "cook", models: [{ id: "x:cook" }], commands: [] },
];

test("a choice is what the server has, and the default is no choice", () => {
  const settled = [
    [{ agentId: "cook", model: "x:cook" }, { agentId: "cook", model: "" }],
    [{ agentId: "clerk", model: "x:own" }, { agentId: "", model: "" }],
    [{ agentId: "clerk", model: "x:other" }, { agentId: "", model: "x:other" }],
    [{ agentId: "gone", model: "x:other" }, { agentId: "", model: "x:other" }],
    [{ agentId: "cook", model: "x:other" }, { agentId: "cook", model: "" }],
  ];
  for (const [choice, expected] of settled) assert.deepEqual(settle(choice, AGENTS), expected);
  // before the list is there, what the conversation has used counts
  assert.deepEqual(settle({ agentId: "a", model: "b" }, []), { agentId: "a", model: "b" });
});

test("a conversation keeps its last message's choice until a person picks another", () => {
  const chosen = new Chosen();
  const picked = { agentId: "cook", model: "" };
  chosen.follow({ model: "x:other" });
  assert.deepEqual(chosen.choice, { agentId: "", model: "x:other" });
  chosen.pick(picked);
  chosen.follow({ model: "x:other" });
  assert.deepEqual(chosen.choice, picked);
  chosen.sent();
  chosen.follow({ agentId: "clerk" });
  assert.deepEqual(chosen.choice, { agentId: "clerk", model: "" });
  // nothing is stored here, so that another conversation begins with the default
  chosen.leave();
  assert.deepEqual(chosen.choice, { agentId: "", model: "" });
});

test("commands are offered while the first word is written", () => {
  const commands = ["clear", "compact", "help"].map((name) => ({ name, description: "" }));
  const offered = (text) => matching(text, commands).map(({ name }) => name);
  assert.deepEqual(offered("/"), ["clear", "compact", "help"]);
  assert.deepEqual(offered("/c"), ["clear", "compact"]);
  assert.deepEqual(offered("/help"), ["help"]);
  for (const text of ["", "c", " /c", "/c ", "/C", "/x", "//", "/etc/hosts", "a /c", "/c\n"]) {
    assert.deepEqual(offered(text), [], text);
  }
});

// ---------------------------------------------------------------- posts
const sent = async (message) => {
  const posts = [];
  await message.send({ send: (...args) => posts.push(args) }, "c", { include: ["usage"] });
  return posts[0];
};

test("a message has its attachments, and says who answers", async () => {
  const link = { type: "file", url: "https://a.example/", mediaType: "", name: "" };
  const to = { agentId: "cook", model: "x:y" };
  const message = new Message("look", { attached: [IMAGE, link], to });
  const [{ content, role, id }, options] = await sent(message);
  assert.deepEqual(content, [
    { type: "text", text: "look" },
    { type: "image", url: PIXEL, mediaType: "image/png", name: "a.png" },
    { type: "file", url: "https://a.example/" },
  ]);
  assert.deepEqual([role, id], ["user", message.id]);
  assert.deepEqual([options.agentId, options.model, options.conversationId], ["cook", "x:y", "c"]);
  const [{ content: alone }] = await sent(new Message("", { attached: [IMAGE] }));
  assert.deepEqual(alone, [{ ...IMAGE }]);
  assert.equal((await sent(new Message("hi")))[0].content, "hi");
});

test("a message that waits shows the names of its attachments", () => {
  const shown = [];
  const queued = new QueuedPosts({ setQueued: (texts) => shown.push(texts) });
  queued.add(new Message("look", { attached: [IMAGE, { ...IMAGE, name: BIDI }] }), null);
  queued.add(new Message("", { attached: [IMAGE] }), null);
  assert.deepEqual(shown.at(-1), ["look\na.png\n\\u202egnp.exe", "a.png"]);
});

test("a post to an agent by its name is one, too", () => {
  const paths = ["/send-message", "/a/v1/aibot/bots/b/send-message", "/conversations/c/stream"];
  assert.deepEqual(paths.map(isPost), [true, true, false]);
});

// ---------------------------------------------------------------- the history
test("the history has media beside the text, and who was asked", () => {
  const content = [{ type: "text", text: "look" }, { ...IMAGE }, { type: "data", data: [1] }];
  const user = { id: "m", role: "user", content, agentId: "cook", model: "x:y" };
  assert.deepEqual(readMessage(user), {
    role: "user",
    id: "m",
    text: "look\n[1]",
    words: "look",
    kept: ["[a.png]", "[1]"],
    attached: [IMAGE],
    agentId: "cook",
    model: "x:y",
  });
  const usage = { inputTokens: 1 };
  const answer = { id: "n", role: "assistant", content: content.slice(0, 2), usage, runId: "r" };
  assert.deepEqual(readMessage(answer), {
    ...{ role: "assistant", id: "n", text: "look", calls: [], partial: false, model: null },
    ...{ attached: [IMAGE], usage, runId: "r" },
  });
  // as the event of the result has it
  assert.equal(readMessage({ role: "tool", content }).text, `look\n${PIXEL}\n[1]`);
});

// ---------------------------------------------------------------- usage
test("an answer's usage is that of all its calls, and sub-agents have a share", () => {
  const [first, second] = [emptyTally(), emptyTally()];
  count(first, { inputTokens: 1000, outputTokens: 20, cachedTokens: 800 }, false);
  count(first, { inputTokens: 0, outputTokens: 0 }, false);
  count(second, { inputTokens: 234, outputTokens: 6, reasoningTokens: 5, estimated: true }, true);
  count(second, { inputTokens: NaN, outputTokens: "5" }, true);
  const total = sum([first, second]);
  assert.deepEqual(total, {
    ...{ calls: 2, input: 1234, output: 26, cached: 800, reasoning: 5, within: 240 },
    isEstimated: true,
  });
  assert.deepEqual(describe(total, 0.001234567), {
    short: "≈ 1,234 in (800 cached) · 26 out (5 reasoning) · cost 0.00123",
    long:
      "Tokens of this answer: 1,234 of input, of which 800 came from a cache; 26 of output, of " +
      "which 5 were reasoning; in 2 calls of models. 240 of them were used by sub-agents. Some " +
      "are estimated: the answer was cut before they were counted. Cost by the server's prices: " +
      "0.00123.",
  });
});

test("what is not known is not shown", () => {
  const tally = emptyTally();
  assert.deepEqual(describe(tally, 1), { short: "", long: "" });
  count(tally, { inputTokens: 7, outputTokens: 1 }, false);
  assert.deepEqual(describe(tally, null), {
    short: "7 in · 1 out",
    long: "Tokens of this answer: 7 of input; 1 of output; in one call of models.",
  });
});
