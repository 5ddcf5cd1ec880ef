"""Tools for the structured data that was posted last: query it, summarise it, validate it.

Queries are JMESPath, and a table is a list of its rows. They run in processes of their own, which are killed when one takes too long; there are few, in
which owners take turns.
"""

import os
from typing import Annotated, Any

import anyio
import anyio.to_process
from anyio.lowlevel import RunVar
from pydantic import Field
from pydantic_core import to_json

from passback.core.toolsets import ToolContext
from passback.places import Places, places_of
from passback.toolsets.functions import Functions, ToolError, tool
from passback.toolsets.querying import Query, run_query

SECONDS = 10.0
"""For one query, of which the start of its process may take some."""

WAIT = 15.0
"""Seconds in which a query gets a process; then it is not made."""

_RESULT = 64 * 1024 + 1
"""Characters of a result: one more than a tool may say, so that it is known to be cut."""

_DEADLINE = 2 * (WAIT + SECONDS)
"""Of a call, in seconds: what is done beside its query is done by then."""

PLACES: RunVar[Places] = RunVar("places for queries")
"""Those of an event loop. Where none are set, they are one more than there are processors: no owner has all of them."""

_Expression = Annotated[
    str, Field(description="JMESPath, such as `orders[?total > `100`].customer`.", max_length=2000)
]


@tool(read_only=True, seconds=_DEADLINE)
async def query_data(expression: _Expression, context: ToolContext) -> str:
    """Query the structured data of this conversation by a JMESPath expression; gives the result as JSON. A table is a list of rows."""
    return await _answered(context, Query(expression, _RESULT))


@tool(read_only=True, seconds=_DEADLINE)
async def summarise_data(context: ToolContext, expression: _Expression = "@") -> str:
    """Summarise the structured data, or the part of it that a JMESPath expression gives.

    Gives for each field of its records, or column of a table: counts, types, smallest and largest value, mean, median and
    standard deviation, distinct and most common values.
    """
    return await _answered(context, Query(expression, _RESULT, summarised=True))


@tool(read_only=True, seconds=_DEADLINE)
async def validate_data(
    schema: Annotated[
        dict[str, Any],
        Field(
            description="A JSON Schema: of one row where the data is a table or a list of records, or else of all of it. "
            "One of type `array` is of the whole list."
        ),
    ],
    context: ToolContext,
    expression: _Expression = "@",
) -> str:
    """Check the structured data, or the part that a JMESPath expression gives, against a JSON Schema; says what does not fit.

    Each row of a table, or of a list of records, is checked by itself.
    """
    return await _answered(context, Query(expression, _RESULT, schema=schema))


DATA_TOOLS = Functions([query_data, summarise_data, validate_data])


async def _answered(context: ToolContext, query: Query) -> str:
    if context.data is None:
        raise ToolError("There is no structured data in this conversation.")
    data = to_json(context.data)
    places = places_of(PLACES, (os.cpu_count() or 1) + 1, WAIT)
    try:
        async with places.one(context.run.key):
            return await _run(data, query)
    except TimeoutError:
        raise ToolError(
            f"The query was not made: it waited {places.seconds:g} seconds for others. Ask again later."
        ) from None


async def _run(data: bytes, query: Query) -> str:
    with anyio.move_on_after(SECONDS):
        try:
            # the places say how many there are
            alone = anyio.CapacityLimiter(1)
            return await anyio.to_process.run_sync(
                run_query, data, query, cancellable=True, limiter=alone
            )
        except ValueError as error:
            raise ToolError(str(error)) from None
    raise ToolError(f"The query did not end within {SECONDS:g} seconds; ask for less.")
