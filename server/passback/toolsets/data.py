"""Tools for the structured data that was posted last: query it, summarise it, validate it.

Queries are JMESPath; a table is a list of its rows. Each query runs in a process, which is killed
when the query takes too long. Processes are few, and owners take turns in using them.
"""

import os
from functools import partial
from typing import Annotated, Any

import anyio
import anyio.to_process
from anyio.lowlevel import RunVar
from pydantic import Field
from pydantic_core import to_json

from passback.core.toolsets import ToolContext
from passback.pacing import FairLimiter, limiter_of
from passback.toolsets.functions import FunctionTools, ToolError, tool
from passback.toolsets.querying import Query, run_query

SECONDS = 10.0  # for one query, the start of its process included

WAIT = 15.0  # seconds that a query waits for a process before it is refused

# One character more than a tool may return: so the caller can see that a result was cut.
_RESULT_CHARACTERS = 64 * 1024 + 1

# Seconds for a call: twice the query's, for all work around it.
_CALL_SECONDS = 2 * (WAIT + SECONDS)

PLACES: RunVar[FairLimiter] = RunVar("places for queries")
"""The process slots of an event loop. By default one more than processors: no owner gets all."""

_Expression = Annotated[
    str, Field(description="JMESPath, such as `orders[?total > `100`].customer`.", max_length=2000)
]


@tool(read_only=True, seconds=_CALL_SECONDS, title="Query the data", kind="read")
async def query_data(expression: _Expression, context: ToolContext) -> str:
    """Query the structured data of this conversation by a JMESPath expression; gives the result as
    JSON. A table is a list of rows.
    """
    return await _answer_query(context, Query(expression, _RESULT_CHARACTERS))


@tool(read_only=True, seconds=_CALL_SECONDS, title="Summarise the data", kind="read")
async def summarise_data(context: ToolContext, expression: _Expression = "@") -> str:
    """Summarise the structured data, or the part of it that a JMESPath expression gives.

    Gives for each field of its records, or column of a table: counts, types, smallest and largest
    value, mean, median and standard deviation, distinct and most common values.
    """
    return await _answer_query(context, Query(expression, _RESULT_CHARACTERS, summarised=True))


@tool(read_only=True, seconds=_CALL_SECONDS, title="Check the data", kind="read")
async def validate_data(
    schema: Annotated[
        dict[str, Any],
        Field(
            description="A JSON Schema: of one row where the data is a table or a list of records, "
            "or else of all of it. One of type `array` is of the whole list."
        ),
    ],
    context: ToolContext,
    expression: _Expression = "@",
) -> str:
    """Check the structured data, or the part that a JMESPath expression gives, against a JSON
    Schema; says what does not fit.

    Each row of a table, or of a list of records, is checked by itself.
    """
    return await _answer_query(context, Query(expression, _RESULT_CHARACTERS, schema=schema))


DATA_TOOLS = FunctionTools([query_data, summarise_data, validate_data])


async def _answer_query(context: ToolContext, query: Query) -> str:
    if context.data is None:
        raise ToolError("There is no structured data in this conversation.")
    data = to_json(context.data)
    places = limiter_of(PLACES, (os.cpu_count() or 1) + 1, WAIT)
    try:
        async with places.acquire(context.run.key):
            with anyio.move_on_after(SECONDS):
                # anyio's own limit of processes must not bind as well: the slots bound them already
                limiter = anyio.CapacityLimiter(1)
                run = partial(
                    anyio.to_process.run_sync,
                    partial(run_query, data, query),
                    cancellable=True,
                    limiter=limiter,
                )
                try:
                    return await run()
                except anyio.BrokenWorkerProcess:
                    # a process that waited may have been killed, such as by a lack of memory
                    return await run()
            raise ToolError(f"The query did not end within {SECONDS:g} seconds; ask for less.")
    except ValueError as error:
        raise ToolError(str(error)) from None
    except TimeoutError:
        raise ToolError(
            f"The query was not made: it waited {places.seconds:g} seconds for others. "
            "Ask again later."
        ) from None
