"""An agent that keeps mail, and may not do all that it wants to.

passback serve permissions:agent permissions:in_house
"""

from passback import Agent, Permission, tool
from passback.messages import RunRef, ToolCall
from passback.testing import ScriptedModel, calls, says


@tool(read_only=True)
def read_mail(number: int) -> str:
    """Read a letter."""
    return f"Letter {number}: please answer."


@tool(permission=Permission("ask", "It goes to other people."))
def send_mail(to: str, text: str) -> str:
    """Send a letter."""
    return f"sent to {to}: {text}"


@tool
def delete_mail(number: int) -> str:
    """Delete a letter."""
    return f"letter {number} is deleted"


# plays what a real model would say; leave `model` out to use that of your settings
script = ScriptedModel(
    [
        calls(
            ("read_mail", {"number": 1}),
            ("delete_mail", {"number": 1}),
            ("send_mail", {"to": "ann@example.org", "text": "Thank you."}),
        ),
        says("I have answered it."),
    ],
    per_message=True,
)

# by patterns: what nobody has an opinion on is what the tool itself says
agent = Agent(
    model=script,
    prompt="You keep mail.",
    tools=[read_mail, send_mail, delete_mail],
    permissions={"read_*": "allow", "delete_*": "deny"},
)


# or by a function
def to_colleagues(call: ToolCall, run: RunRef) -> Permission | None:
    if call.name == "send_mail" and '@example.org"' in call.arguments:
        return Permission("allow")
    if call.name == "delete_mail" and run.key.owner != "ann":
        return Permission("deny", "Only Ann may delete letters.")
    return None


in_house = Agent(
    model=script,
    prompt="You keep mail.",
    tools=[read_mail, send_mail, delete_mail],
    permissions=to_colleagues,
)
