"""Tricks that are only there for speed. Everything works without them.

`templates.py`
    Takes the text of a model's events that differ in nothing else, without parsing them.
    Buys: 191 million instructions of a burst, 263 without.
    Remove it when parsing an event costs no more than comparing it.

`collecting.py`
    Collects garbage fully only when nobody is being answered.
    Buys: on one quiet machine the p99 of slow streams was 27 ms, and 560 ms without.
    Remove it when a full collection does not pause the process.

`sending.py`, which `streams/writer.py` uses where the server offers it
    Writes a chunk within the run's own step; no task waits for the client to disconnect.
    Buys: 195 million instructions of short requests, 216 without.
    Off with PASSBACK_DIRECT_SENDING=false. Remove it when `await send` needs no turn of the event
    loop.

Idle flushes: `_IDLE_FLUSH_TICKS` in `engine/log.py`
    Stores text a quarter as often while nobody reads it through another worker.
    Buys: half of the work of Redis under `paced`.
    Remove it when a write to the store costs next to nothing.

Text events: the first case of `NativeEncoder.feed` in `native/responses.py`
    Writes the JSON of a text event as text.
    Buys: 2,400 instructions of an event, 17,000 without.
    Remove it when the encoder of `json` costs no more.

Known schemas: `_known_schemas` in `native/declarations.py`
    Keeps the checked schemas of client tools, which come again with every post.
    Buys: three tools take 0.02 ms of a post's CPU, 0.9 ms without.
    Remove it when a schema is checked without a thread.

The instructions are callgrind's: those of a text event of a loop around its encoding, all others of
the whole load on Redis behind a warm-up:
`valgrind --tool=callgrind --instr-atstart=no python -m passback serve`, switched on by
`callgrind_control -i on` for `python -m benchmarks.load` with `--streams 5 --requests 2
--deltas 500 --gap-ms 0` (burst) and `--streams 1 --requests 50 --deltas 1 --gap-ms 0` (short).
The CPU of known schemas is `time.process_time` around `parse_tools`, and the other figures are of
`benchmarks/run`.
"""
