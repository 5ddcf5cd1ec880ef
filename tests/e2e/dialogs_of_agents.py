"""Examples of what surrounds an agent: sub-agents, limits, commands, window, prompt, models."""

from tests.e2e.example_dialogs import ALL, Listener, example_dialog, roles
from tests.support.wire import DONE, Client, check_refusal, client_tool, result, user

ZONE = client_tool("get-time-zone")


@example_dialog("sub_agents")
async def sub_agents(client: Client) -> None:
    listener = Listener()
    clerk = "planner > clerk"
    words = user("Plan my morning.")
    assert listener.describe(await client.post("c", words, tools=[ZONE], include=ALL)) == [
        'calls planner {"task": "Plan a morning with a visit to Tea & Co."}',
        "complete: planner",
        f'calls {clerk} {{"task": "When does Tea & Co open, by the traveller\'s clock?"}}',
        f"complete: {clerk}",
        f'calls {clerk} > opening_hours {{"shop": "Tea & Co"}}',
        f"calls {clerk} > get-time-zone {{}}",
        f"complete: {clerk} > opening_hours",
        f"{clerk} > opening_hours: Tea & Co: 9 to 18 o'clock in Vienna",
        f"complete: {clerk} > get-time-zone",
        f"owed: {clerk} > get-time-zone (tool_result)",
        "handed-back",
        DONE,
    ]
    given = result(listener.ids[f"{clerk} > get-time-zone"], "Europe/Vienna")
    found = "Tea & Co opens at 9 o'clock, also by the traveller's clock."
    assert listener.describe(await client.post("c", given, include=ALL)) == [
        f"{clerk} says: {found}",
        f"{clerk}: {found}",
        "planner says: At 9 o'clock to Tea & Co.",
        "planner: At 9 o'clock to Tea & Co.",
        "text: Begin at 9 o'clock with Tea & Co.",
        "completed end_turn",
        DONE,
    ]
    messages = await client.messages("c")
    assert roles(messages) == ["user", "assistant", *["child"] * 9, "tool", "assistant"]


@example_dialog("side_by_side")
async def side_by_side(client: Client) -> None:
    """Texts of sub-agents may come in any order, each line with its own call."""
    lines = Listener().describe(await client.post("c", user("To Graz, please."), include=ALL))
    assert sorted(lines[4:-3]) == [
        'calls trains > reserve {"town": "Graz"}',
        'calls weather > forecast {"town": "Graz"}',
        "complete: trains > reserve",
        "complete: weather > forecast",
        "trains > reserve: seat 21 to Graz",
        "trains says: Seat 21 is yours.",
        "trains: Seat 21 is yours.",
        "weather > forecast: sun in Graz",
        "weather says: It will be sunny.",
        "weather: It will be sunny.",
    ]
    assert lines[-3:] == [
        "text: It will be sunny, and you have seat 21.",
        "completed end_turn",
        DONE,
    ]


@example_dialog("forks")
async def forks(client: Client) -> None:
    lines = Listener().describe(await client.post("c", user("When can we leave?"), include=ALL))
    assert sorted(line for line in lines if " says: " in line) == [
        "fork #2 says: 2 months",
        "fork says: 1 months",
    ]
    assert lines[-3] == "text: Page 1 says 1 month, page 2 says 2."
    asked = [each["message"] for each in await client.messages("c") if each["role"] == "child"]
    tasks = [each["content"] for each in asked if each["role"] == "user"]
    assert sorted(tasks) == ["Page 1: how long?", "Page 2: how long?"]


@example_dialog("memory")
async def memory(client: Client) -> None:
    assert (await client.post("c", user("The usual."))).text == "Black tea, as ever?"


@example_dialog("several_agents")
async def several_agents(client: Client) -> None:
    assert (await client.post("c", user("My kettle is cold."))).text == "Is it plugged in?"
    sales = "/v1/aibot/bots/sales/send-message"
    answer = await client.post("c", user("What is a new one?"), path=sales)
    assert answer.text == "A new one is 30 euros."
    asked = [each for each in await client.messages("c") if each["role"] == "user"]
    assert [each.get("agentId") for each in asked] == [None, "sales"]
    nobody = "/v1/aibot/bots/nobody/send-message"
    body = {"messages": [user("hi")]}
    check_refusal(await client.http.post(nobody, json=body), 404, "agent_not_found")


@example_dialog("limits")
async def limits(client: Client) -> None:
    lefts: list[dict[str, float]] = []
    ends: list[str] = []
    words = user("What is a budget?")
    for answer in [await client.post("c", words, include=["usage", "run"]) for _ in range(3)]:
        events = [frame.event for frame in answer.frames[:-1]]
        lefts += [event["left"] for event in events if event["type"] == "usage"]
        ends.append(events[-1]["reason"])
    # each call costs 0.03; the last one may begin with 0.01 left, and goes beyond
    assert [round(left["cost"], 2) for left in lefts] == [0.07, 0.04, 0.01, 0, 0]
    assert [(left["turns"], left["tokens"]) for left in lefts[:2]] == [(4, 29_000), (3, 8_000)]
    assert ends == ["end_turn", "end_turn", "budget"]
    assert answer.headers["x-budget-left-cost"] == "0"
    assert roles(await client.messages("c"))[-2:] == ["assistant", "user"]


@example_dialog("commands")
async def commands(client: Client) -> None:
    async def answer(words: str) -> str:
        return (await client.post("c", user(words))).text

    assert (await answer("/help")).splitlines() == [
        "/clear  Lets the agent forget what was said before; the history stays.",
        "/compact  Lets the agent sum up what was said before.",
        "/greet  Greets somebody.",
        "/help  Lists the commands.",
    ]
    assert await answer("/greet Ada") == "Hello, Ada!"
    assert await answer("/greet") == "Hello, anonymous!"
    for words in ("hello", " /greet", "/etc/hosts"):
        assert await answer(words) == "A model has read this."
    before = await client.messages("c")
    unknown = {"conversationId": "c", "messages": [user("/nosuch")]}
    refused = await client.http.post("/send-message", json=unknown)
    check_refusal(refused, 422, "unknown_command")
    assert refused.json()["message"] == (
        "unknown command /nosuch. Available: /clear, /compact, /greet, /help. "
        "To send it as text, put a space in front"
    )
    assert await client.messages("c") == before
    listed = (await client.http.get("/commands")).json()["commands"]
    assert {"name": "greet", "description": "Greets somebody."} in listed


@example_dialog("long_conversation")
async def long_conversation(client: Client) -> None:
    reports: list[list[str]] = []
    for words in (*["How do I keep ferns?"] * 9, "/compact"):
        answer = await client.post("c", user(words), include=["context"])
        reports.append([line for line in Listener().describe(answer) if line.startswith("context")])
    full, room, asked = '"window": 1400', '"step": "summary"', 9
    assert [[full in line, room in line] for lines in reports for line in lines[-1:]] == [
        [True, False],
        [True, False],
        [False, True],
        [False, True],
    ]
    assert [bool(lines) for lines in reports] == [False] * 6 + [True] * 4
    # the history has every word
    messages = await client.messages("c")
    assert roles(messages).count("summary") == 2
    assert [each["content"] for each in messages if each["role"] == "user"] == [
        *["How do I keep ferns?"] * asked,
        "/compact",
    ]


@example_dialog("prompt_layers")
async def prompt_layers(client: Client) -> None:
    context = {"intent": "complain", "constraints": ["in English"], "instructions": "Be brief."}
    assert (await client.post("c", user("Where is it?"), **context)).text == "It is on its way."
    [asked, _] = await client.messages("c")
    at = asked.pop("at")
    set_here = {name: asked[name] for name in ("id", "createdAt", "runId")}
    assert asked == {**set_here, "role": "user", "content": "Where is it?", **context}
    assert at.endswith("+00:00")


@example_dialog("thinking")
async def thinking(client: Client) -> None:
    words = user("Is 17 prime?")
    assert Listener().describe(await client.post("c", words, include=["reasoning"])) == [
        "reasoning: 17 has no divisor up to 4.",
        "text: It is prime.",
        DONE,
    ]
    # who does not ask for it gets the answer alone
    assert Listener().describe(await client.post("c", words)) == ["text: It is prime.", DONE]
