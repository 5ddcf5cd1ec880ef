"""An agent that is given invoices and answers with a record, not with prose.

passback serve structured_data:agent
"""

from pydantic import BaseModel

from passback import Agent
from passback.testing import ScriptedModel, calls, says


class Reminder(BaseModel):
    customer: str
    open: float


# plays what a real model would say; leave `model` out to use that of your settings
script = ScriptedModel(
    [
        calls(("query_data", {"expression": "max_by(invoices, &open)"})),
        says('{"customer": "Ann"}'),
        says('{"customer": "Ann", "open": 120}'),
    ],
    per_message=True,
)

agent = Agent(
    model=script,
    prompt="You prepare reminders for invoices.",
    data_tools=True,
    output_schema=Reminder,
)
