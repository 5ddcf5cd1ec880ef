"""Tools for the structured data that was posted last: query it, summarise it, validate it.

Queries are JMESPath. They run in processes of their own, which are killed when one takes too long; there are few, in
which owners take turns.
"""

import os
from typing import Annotated, Any

import anyio
import anyio.to_process
import anyio.to_thread
from anyio.lowlevel import RunVar
from pydantic import Field
from pydantic_core import to_json

from passback.core.messages import JsonObject, ToolSpec
from passback.core.toolsets import ToolContext
from passback.places import Places, places_of
from passback.schemas.arguments import objection
from passback.schemas.declared import Unfit, fit
from passback.toolsets.functions import Functions, ToolError, tool
from passback.toolsets.querying import run_query

SECONDS = 10.0
"""For one query, of which the start of its process may take some."""

WAIT = 15.0
"""Seconds in which a query gets a process; then it is not made."""

_RESULT = 64 * 1024 + 1
"""Characters of a result: one more than a tool may say, so that it is known to be cut."""

_PART = 1024 * 1024
"""Characters of what is validated."""

_DEADLINE = 2 * (WAIT + SECONDS)
"""Of a call, in seconds: what is done beside its query is done by then."""

PLACES: RunVar[Places] = RunVar("places for queries")
"""Those of an event loop. Where none are set, they are one more than there are processors: no owner has all of them."""

_Expression = Annotated[
    str, Field(description="JMESPath, such as `orders[?total > `100`].customer`.", max_length=2000)
]


@tool(read_only=True, seconds=_DEADLINE)
async def query_data(expression: _Expression, context: ToolContext) -> str:
    """Query the structured data of this conversation by a JMESPath expression; gives the result as JSON."""
    return await _queried(context, expression, most=_RESULT)


@tool(read_only=True, seconds=_DEADLINE)
async def summarise_data(context: ToolContext, expression: _Expression = "@") -> str:
    """Summarise the structured data, or the part of it that a JMESPath expression gives.

    Gives for each field of its records: counts, types, smallest, largest and mean number, distinct and most common values.
    """
    return await _queried(context, expression, summarised=True, most=_RESULT)


@tool(read_only=True, seconds=_DEADLINE)
async def validate_data(
    schema: Annotated[dict[str, Any], Field(description="A JSON Schema.")],
    context: ToolContext,
    expression: _Expression = "@",
) -> str:
    """Check the structured data, or the part that a JMESPath expression gives, against a JSON Schema; says what does not fit."""
    part = await _queried(context, expression, most=_PART)
    if len(part) == _PART:
        raise ToolError("This part of the data is too large to be validated at once.")
    try:
        fitting: JsonObject = await anyio.to_thread.run_sync(lambda: fit(schema, of=None))
    except Unfit as problem:
        raise ToolError(f"The schema cannot be used: {problem}.") from None
    wrong = await objection(ToolSpec("data", "", fitting), part, context.run.key)
    return "It fits." if wrong is None else f"It does not fit: {wrong}"


DATA_TOOLS = Functions([query_data, summarise_data, validate_data])


async def _queried(
    context: ToolContext, expression: str, *, most: int, summarised: bool = False
) -> str:
    if context.data is None:
        raise ToolError("There is no structured data in this conversation.")
    asked = (to_json(context.data), expression, summarised, most)
    places = places_of(PLACES, (os.cpu_count() or 1) + 1, WAIT)
    try:
        async with places.one(context.run.key):
            return await _answered(*asked)
    except TimeoutError:
        raise ToolError(
            f"The query was not made: it waited {places.seconds:g} seconds for others. Ask again later."
        ) from None


async def _answered(*asked: Any) -> str:
    with anyio.move_on_after(SECONDS):
        try:
            # the places say how many there are
            alone = anyio.CapacityLimiter(1)
            return await anyio.to_process.run_sync(
                run_query, *asked, cancellable=True, limiter=alone
            )
        except ValueError as error:
            raise ToolError(str(error)) from None
    raise ToolError(f"The query did not end within {SECONDS:g} seconds; ask for less.")
