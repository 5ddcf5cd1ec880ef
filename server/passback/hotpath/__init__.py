"""Tricks that are only there for speed. Everything works without them.

`templates.py`
    Takes the text of a model's events that differ in nothing else, without parsing them.
    Buys: 191 million instructions of a burst, 263 without.
    Remove it when parsing an event costs no more than comparing it.

`collecting.py`
    Collects garbage fully only when nobody is being answered.
    Buys: slow streams are at most 27 ms late (p99), 560 ms without.
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

The instructions are callgrind's, of the whole load on Redis behind a warm-up:
`valgrind --tool=callgrind --instr-atstart=no python -m passback serve`, switched on by
`callgrind_control -i on` for `python -m benchmarks.load` with `--streams 5 --requests 2
--deltas 500 --gap-ms 0` (burst) and `--streams 1 --requests 50 --deltas 1 --gap-ms 0` (short).
The other figures are of `benchmarks/run`.
"""
