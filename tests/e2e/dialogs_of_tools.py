"""The examples of what an agent may do: tools, permissions, questions, data, a plan."""

from tests.e2e.example_dialogs import ALL, WAIT, Listener, example_dialog, roles
from tests.support.wire import DONE, Client, Json, check_refusal, client_tool, result, user

ZONE = client_tool("get-time-zone")


def _post(*messages: Json) -> Json:
    return {"conversationId": "c", "messages": messages}


@example_dialog("server_tools")
async def server_tools(client: Client) -> None:
    answer = await client.post("c", user("Four packets of cocoa"), include=ALL)
    reserve = '{"item": "cocoa", "packets": 2}'
    assert Listener().describe(answer) == [
        'calls delivery_days {"item": "cocoa"}',
        'calls in_stock {"item": "cocoa"}',
        'calls supplier {"item": "cocoa"}',
        f"calls reserve {reserve}",
        f"calls reserve #2 {reserve}",
        'calls pack {"item": "cocoa", "packets": 2}',
        "complete: delivery_days",
        "complete: in_stock",
        "complete: supplier",
        "complete: reserve",
        "complete: reserve #2",
        "complete: pack",
        # together: the first one fails, and waits for its second attempt while the other one runs
        "in_stock: 3",
        "supplier: cocoa: 3 euros",
        "delivery_days: cocoa: 4 days",
        # one by one: the second one sees what the first one left
        "reserve: looking for cocoa",
        "reserve: done, 1 left",
        "reserve #2: looking for cocoa",
        "reserve #2: of cocoa, 1 are missing",
        # a generator: progress, then its result
        "pack: weighing 2 packets of cocoa",
        "pack: a parcel of 500 g",
        "text: Two packets are yours, two more come in 4 days.",
        "completed end_turn",
        DONE,
    ]
    results = [each for each in await client.messages("c") if each["role"] == "tool"]
    assert [each["content"] for each in results] == [
        "3",
        "cocoa: 3 euros",
        "cocoa: 4 days",
        "done, 1 left",
        "of cocoa, 1 are missing",
        "a parcel of 500 g",
    ]
    assert [each.get("isError", False) for each in results] == [*[False] * 4, True, False]


@example_dialog("permissions")
async def permissions(client: Client) -> None:
    listener = Listener()
    asked = await client.post("c", user("Answer my mail."))
    letter = '{"to": "ann@example.org", "text": "Thank you."}'
    lines = listener.describe(asked)
    assert lines[:3] == [
        'calls read_mail {"number": 1}',
        'calls delete_mail {"number": 1}',
        f"calls send_mail {letter}",
    ]
    assert lines[3:] == [
        "delete_mail: Not executed: this tool may not be called",
        "complete: read_mail",
        "read_mail: Letter 1: please answer.",
        "may send_mail be called? It goes to other people.",
        DONE,
    ]
    yes = {"approved": True, "always": True}
    given = {"interruptId": asked.frames[-2].event["id"], "payload": yes}
    assert listener.describe(await client.post("c", resume=given)) == [
        "complete: send_mail",
        "send_mail: sent to ann@example.org: Thank you.",
        "text: I have answered it.",
        DONE,
    ]
    # "always": the next one is not asked for, and what is denied stays denied
    assert Listener().describe(await client.post("c", user("Again.")))[3:] == [
        "delete_mail: Not executed: this tool may not be called",
        "complete: read_mail",
        "complete: send_mail",
        "read_mail: Letter 1: please answer.",
        "send_mail: sent to ann@example.org: Thank you.",
        "text: I have answered it.",
        DONE,
    ]
    # by the function: mail to colleagues needs nobody's word
    in_house = "/v1/aibot/bots/in_house/send-message"
    assert Listener().describe(await client.post("d", user("Answer."), path=in_house))[3:] == [
        "delete_mail: Not executed: Only Ann may delete letters.",
        "complete: read_mail",
        "complete: send_mail",
        "read_mail: Letter 1: please answer.",
        "send_mail: sent to ann@example.org: Thank you.",
        "text: I have answered it.",
        DONE,
    ]


@example_dialog("asking")
async def asking(client: Client) -> None:
    listener = Listener()
    lines = listener.describe(
        await client.post("c", user("A table on Friday."), tools=[ZONE], include=ALL)
    )
    assert [line.split(" {")[0] for line in lines] == [
        "calls free_hours",
        "calls get-time-zone",
        "calls ask_user",
        "complete: free_hours",
        "free_hours: [17,18,20]",
        "complete: get-time-zone",
        "complete: ask_user",
        "owed: get-time-zone (tool_result), ask_user (question)",
        "handed-back",
        DONE,
    ]
    ids = listener.ids
    noon = {"answers": [{"selected": ["noon"]}, {"text": "Ada"}]}
    check_refusal(
        await client.http.post("/send-message", json=_post(result(ids["ask_user"], noon))),
        422,
        "invalid_answer",
    )
    late = {"answers": [{"selected": ["late"]}, {"text": "Ada"}]}
    first = await client.post("c", result(ids["ask_user"], late))
    assert first.headers["x-owed-tool-calls"] == ids["get-time-zone"]
    second = await client.post("c", result(ids["get-time-zone"], "UTC+1"))
    assert second.text == "I have kept a table for you."
    messages = await client.messages("c")
    assert [each["content"] for each in messages if each["role"] == "tool"] == [
        "[17,18,20]",
        [{"type": "data", "data": late}],
        "UTC+1",
    ]


@example_dialog("planning")
async def planning(client: Client) -> None:
    lines = Listener().describe(await client.post("c", user("We marry in May."), include=["plan"]))
    hall = '{"content": "Find a hall", "priority": "high", "status": "%s"}'
    band = '{"content": "Find a band", "priority": "medium", "status": "%s"}'
    assert [line for line in lines if line.startswith(("plan", "book", "text"))] == [
        f'plan: {{"entries": [{hall % "in_progress"}, {band % "pending"}]}}',
        "book: hall: booked",
        f'plan: {{"entries": [{hall % "completed"}, {band % "in_progress"}]}}',
        "text: The hall is booked. Which music do you like?",
    ]
    plan = (await client.conversation("c"))["plan"]
    assert [(each["content"], each["status"]) for each in plan] == [
        ("Find a hall", "completed"),
        ("Find a band", "in_progress"),
    ]
    await client.post("c", user("/clear"))
    assert (await client.conversation("c"))["plan"] == []


@example_dialog("shared_state")
async def shared_state(client: Client) -> None:
    lines = Listener().describe(await client.post("c", user("Tea and milk"), include=["state"]))
    assert [line for line in lines if line.startswith(("state", "add", "text"))] == [
        "add_to_cart: The cart has 1 items.",
        'state: {"values": {"cart": ["tea"]}, "removed": []}',
        "add_to_cart #2: The cart has 2 items.",
        'state: {"values": {"cart": ["tea", "milk"]}, "removed": []}',
        "text: Tea and milk are in your cart.",
    ]
    assert (await client.conversation("c"))["state"] == {"cart": ["tea", "milk"]}


@example_dialog("structured_data")
async def structured_data(client: Client) -> None:
    invoices = [{"customer": "Bob", "open": 80}, {"customer": "Ann", "open": 120}]
    words = user("Who owes us most?")
    answer = await client.post("c", words, structuredData={"invoices": invoices}, path=WAIT)
    body = answer.json
    assert (body["outcome"], body["output"]) == ("completed", {"customer": "Ann", "open": 120})
    # what streamed was a draft: the first answer lacked something
    assert body["text"] == '{"customer": "Ann"}{"customer": "Ann", "open": 120}'
    messages = await client.messages("c")
    assert roles(messages) == ["user", "assistant", "tool", "assistant", "system", "assistant"]
    assert messages[0]["structuredData"] == {"invoices": invoices}
    assert messages[2]["content"] == '{"customer":"Ann","open":120}'
    assert messages[4]["synthetic"] == "invalid"
    assert '"open" is a required property' in messages[4]["content"]
    table = {"mediaType": "text/csv", "text": "customer,open\nBob,80\nAnn,120\n"}
    answer = await client.post("t", words, structuredData={"invoices": table}, path=WAIT)
    assert answer.json["output"] == {"customer": "Ann", "open": 120}
    messages = await client.messages("t")
    assert messages[0]["structuredData"] == {"invoices": table}
    assert messages[2]["content"] == '{"customer":"Ann","open":120}'
    table["text"] += "Cid\n"
    posted = {**_post(words), "structuredData": {"invoices": table}}
    refused = await client.http.post("/send-message", json=posted)
    check_refusal(refused, 422, "invalid_request")


PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@example_dialog("attachments")
async def attachments(client: Client) -> None:
    photo = {"type": "image", "data": PIXEL, "mediaType": "image/png"}
    words = {"type": "text", "text": "What did I pay?"}
    answer = await client.post("c", user([words, photo]), path=WAIT)
    assert answer.json["output"] == {"shop": "Tea & Co", "total": 12.5}
    [asked, _] = await client.messages("c")
    kept = asked["content"]
    link = f"data:image/png;base64,{PIXEL}"
    assert kept == [words, {"type": "image", "url": link, "mediaType": "image/png"}]
    for changed, status, code in (
        ({"data": "AAAA" * 32_768}, 413, "attachment_too_large"),
        ({"mediaType": "text/plain"}, 422, "invalid_request"),
    ):
        refused = await client.http.post("/send-message", json=_post(user([photo | changed])))
        check_refusal(refused, status, code)
    assert len(await client.messages("c")) == 2
