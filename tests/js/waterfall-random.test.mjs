/**
 * Random runs, delivered live, with cuts, late or twice: the rows are those of what has happened.
 */

import assert from "node:assert/strict";
import { test } from "node:test";

import { rowsOf } from "../../client_tools/playground/spans.js";
import {
  START,
  Script,
  T0,
  begin,
  call,
  end,
  message,
  owed,
  ready,
  result,
  text,
  usage,
} from "./waterfall-support.mjs";

const RUNS = 120;
/** A pause that tells late events from live ones. */
const PAUSE = 50;

/** A generator of numbers in [0, 1) that a seed determines. */
function seeded(seed) {
  let state = seed * 2654435761 + 1;
  return () => {
    state = (state * 1664525 + 1013904223) % 2 ** 32;
    return state / 2 ** 32;
  };
}

/** A run as it happens: its events with their true times, and the true spans by row. */
class Truth {
  events = [];
  spans = new Map();
  time = 1000;
  #random;
  #ids = 0;

  constructor(random) {
    this.#random = random;
    this.say({ ...START });
    const turns = 1 + this.upTo(3);
    for (let turn = 0; turn < turns; turn += 1) this.turn("", 0, turn + 1 < turns);
    if (this.chance(0.3)) this.handBack();
    else this.say(end(this.chance(0.2) ? "cancelled" : "completed"));
  }

  upTo(most) {
    return Math.floor(this.#random() * (most + 1));
  }

  chance(share) {
    return this.#random() < share;
  }

  pass() {
    this.time += PAUSE + this.upTo(400);
  }

  say(event) {
    this.events.push({ at: this.time, event });
  }

  id(kind) {
    this.#ids += 1;
    return `${kind}${this.#ids}`;
  }

  /** A model call, and its tools in parallel. */
  turn(agent, depth, hasTools) {
    const of = agent === "" ? {} : { parentToolCallId: agent };
    const id = this.id("m");
    this.pass();
    const from = this.time;
    this.say(message(id, { ...of, startedAt: new Date(T0 + from).toISOString() }));
    for (let piece = this.upTo(3); piece > 0; piece -= 1) {
      this.pass();
      this.say(agent === "" ? text() : { type: "agent-text", delta: "x", ...of });
    }
    const tools = hasTools ? Array.from({ length: 1 + this.upTo(2) }, () => this.id("c")) : [];
    tools.forEach((tool) => this.say(call(tool, "look", of)));
    this.pass();
    this.say(usage(of));
    this.spans.set(`model.${id}`, [from, this.time, agent]);
    tools.forEach((tool) => this.say(ready(tool, of)));
    if (tools.length > 0) this.work(tools, of, depth);
  }

  work(tools, of, depth) {
    const from = this.time;
    tools.forEach((tool) => this.say(begin(tool, of)));
    if (depth < 2 && this.chance(0.4)) {
      this.turn(tools[0], depth + 1, this.chance(0.5));
    }
    for (const tool of tools) {
      this.pass();
      this.say(result(tool, { ...of, durationMs: this.time - from }));
      this.spans.set(`call.${tool}`, [from, this.time, of.parentToolCallId ?? ""]);
    }
  }

  handBack() {
    const id = this.id("c");
    this.pass();
    this.say(owed([id, "approval"]));
    this.say(end("handed-back"));
    this.spans.set(`call.${id}`, [this.time, null, ""]);
  }
}

/** How a client gets the events: the time of each of its frames. */
const DELIVERIES = {
  live(script, truth) {
    const exchange = script.post(truth.events[0].at - 20);
    script.response(exchange, truth.events[0].at - 10);
    truth.events.forEach(({ at, event }) => script.frame(exchange, at, event));
  },
  "with cuts"(script, truth, random) {
    const exchange = script.post(truth.events[0].at - 20);
    script.response(exchange, truth.events[0].at - 10);
    let back = 0;
    truth.events.forEach(({ at, event }, index) => {
      if (back <= at && index > 0 && random() < 0.1) {
        script.lost(exchange, truth.events[index - 1].at + 1);
        back = at + random() * 1000;
        script.again(exchange, back - 5);
        script.response(exchange, back);
      }
      script.frame(exchange, Math.max(at, back), event);
    });
  },
  late(script, truth, random) {
    const joined = truth.time * (0.3 + random() * 0.7);
    const exchange = script.follow(joined - 10);
    script.response(exchange, joined - 5);
    truth.events.forEach(({ at, event }) => script.frame(exchange, Math.max(at, joined), event));
  },
  twice(script, truth, random) {
    const count = Math.floor(random() * truth.events.length);
    const first = script.post(truth.events[0].at - 20);
    script.response(first, truth.events[0].at - 10);
    const cursors = truth.events.map(() => script.next());
    const send = (exchange, index, at) =>
      script.frame(exchange, at, truth.events[index].event, "r1", cursors[index]);
    for (let index = 0; index < count; index += 1) send(first, index, truth.events[index].at);
    const joined = truth.events[Math.max(0, count - 1)].at + 1;
    const again = script.follow(joined - 1);
    script.response(again, joined);
    truth.events.forEach(({ at }, index) => send(again, index, Math.max(at, joined)));
  },
};

function shown(script) {
  return rowsOf(script.log.answers[0]);
}

for (const [name, deliver] of Object.entries(DELIVERIES)) {
  test(`random runs, ${name}`, () => {
    for (let seed = 1; seed <= RUNS; seed += 1) {
      const random = seeded(seed);
      const truth = new Truth(random);
      const script = new Script();
      deliver(script, truth, random);
      checkTree(truth, shown(script), seed);
      checkTimes(truth, shown(script), { isExact: name === "live", seed });
    }
  });
}

function checkTree(truth, rows, seed) {
  const things = rows.filter(({ kind }) => kind !== "contact" && kind !== "run");
  assert.deepEqual(
    things.map(({ id }) => id).sort(),
    [...truth.spans.keys()].sort(),
    `seed ${seed}`,
  );
  for (const [index, row] of rows.entries()) {
    const parent = rows.findIndex(({ id }) => id === row.parent);
    assert.ok(row.parent === "" ? row.depth === 0 : parent < index, `seed ${seed}: ${row.id}`);
    if (row.parent !== "") assert.equal(row.depth, rows[parent].depth + 1);
    const known = truth.spans.get(row.id);
    if (known) assert.equal(row.parent, known[2] === "" ? "" : `call.${known[2]}`);
  }
}

function checkTimes(truth, rows, { isExact, seed }) {
  const begun = new Map();
  for (const { id, kind, spans } of rows) {
    const where = `seed ${seed}: ${id}`;
    for (const span of spans) {
      assert.ok(span.to === null || span.from <= span.to, where);
      assert.ok(!span.isRough || !isExact, where);
      // nothing goes on behind the run's end but what somebody owes
      assert.equal(span.to === null, span.kind === "person", where);
    }
    const known = truth.spans.get(id);
    if (!known) continue;
    const [from, to] = known;
    begun.set(id, spans[0].from);
    const isModel = kind === "model";
    // the server says when a model call began
    if (isExact || isModel) assert.equal(spans[0].from - T0, from, where);
    if (isExact && to !== null) assert.equal(spans[0].to - T0, to, where);
  }
  for (const row of rows.filter(({ parent }) => begun.has(parent))) {
    assert.ok(row.spans[0].from >= begun.get(row.parent), `seed ${seed}: ${row.id}`);
  }
}

test("a rewind at any place, and the turn again: the same rows, and those that are void", () => {
  for (let seed = 1; seed <= RUNS; seed += 1) {
    const random = seeded(seed);
    const truth = new Truth(random);
    const script = new Script();
    const exchange = script.post(0);
    script.response(exchange, 1);
    const at = 1 + Math.floor(random() * (truth.events.length - 1));
    const cursors = truth.events
      .slice(0, at)
      .map((each) => script.frame(exchange, each.at, each.event));
    const kept = Math.floor(random() * at);
    const time = truth.events[at - 1].at + 7;
    script.takeOver();
    script.frame(exchange, time, { type: "rewind", to: cursors[kept] });
    // what was void happens again, under the same names or new ones
    const rename = random() < 0.5 ? "n" : "";
    for (const { at: when, event } of truth.events.slice(kept + 1)) {
      const renamed = event.messageId ? { ...event, messageId: event.messageId + rename } : event;
      script.frame(exchange, when + 10_000, renamed);
    }
    const rows = shown(script);
    const valid = rows.filter(({ isVoid, id }) => !isVoid && /^(model|call)/.test(id));
    assert.deepEqual(
      valid.map(({ id }) => id.replace(/n$/, "")).sort(),
      [...truth.spans.keys()].sort(),
      `seed ${seed}`,
    );
    for (const { id, isVoid, spans } of rows.filter((row) => row.isVoid)) {
      assert.ok(isVoid && id.startsWith("void."), `seed ${seed}`);
      for (const span of spans) {
        assert.equal(span.state, "void");
        assert.ok(span.to <= T0 + time, `seed ${seed}`);
      }
    }
    const lost = truth.events
      .slice(kept + 1, at)
      .filter(({ event }) => event.type === "message").length;
    const voids = rows.filter(({ isVoid, kind }) => isVoid && kind === "model").length;
    assert.equal(voids, rename ? lost : 0, `seed ${seed}`);
  }
});

const TYPES = [
  ...["message", "text", "usage", "tool-call-start", "tool-call-end", "tool-begin", "tool-result"],
  ...["tool-progress", "owed", "run-start", "run-queued", "run-end", "error", "rewind", "plan"],
  ...["agent-text", "constructor", "posted", "interrupt", "context"],
];
const VALUES = ["a", "b", "c", "__proto__", "", 7, null, true, {}, [], ["a"], undefined, -1, "é"];

test("events that make no sense are harmless: every bar has a place", () => {
  for (let seed = 1; seed <= RUNS; seed += 1) {
    const random = seeded(seed);
    const any = (list) => list[Math.floor(random() * list.length)];
    const script = new Script();
    const exchange = any([script.post(0), script.follow(0)]);
    script.response(exchange, 1);
    for (let number = 0; number < 60; number += 1) {
      const event = { type: any(TYPES), to: `r1.${any([1, 2])}-${number >> 1}` };
      const names = ["messageId", "toolCallId", "parentToolCallId", "toolCalls", "startedAt"];
      for (const name of [...names, "durationMs", "isError", "outcome", "toolCallName", "title"]) {
        if (random() < 0.6) event[name] = any(VALUES);
      }
      if (random() < 0.1) event.toolCalls = [{ id: any(VALUES), kind: any(VALUES) }, any(VALUES)];
      if (random() < 0.05) script.takeOver();
      script.frame(exchange, 2 + 25 * number + random() * 25, event);
    }
    const ids = new Set();
    for (const row of shown(script)) {
      assert.ok(!ids.has(row.id) && (row.parent === "" || ids.has(row.parent)), `seed ${seed}`);
      ids.add(row.id);
      for (const span of row.spans) {
        assert.ok(Number.isFinite(span.from), `seed ${seed}: ${row.id}`);
        assert.ok(span.to === null || span.to >= span.from, `seed ${seed}: ${row.id}`);
      }
    }
  }
});

test("sub-agents below one another without an end are no deeper than the browser's stack", () => {
  const script = new Script();
  const exchange = script.post(0);
  script.response(exchange, 1);
  for (let depth = 0; depth < 15_000; depth += 1) {
    const of = depth === 0 ? {} : { parentToolCallId: `c${depth - 1}` };
    script.frame(exchange, depth, begin(`c${depth}`, of));
  }
  assert.equal(shown(script).at(-1).depth, 14_999);
});
