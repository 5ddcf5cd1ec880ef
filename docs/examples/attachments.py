"""An agent that reads a photo of a receipt and gives a record.

passback serve attachments:agent --limits attachment_bytes=65536
"""

from pydantic import BaseModel

from passback import Agent
from passback.testing import ScriptedModel, says


class Receipt(BaseModel):
    shop: str
    total: float


# plays what a real model would say; leave `model` out to use that of your settings
script = ScriptedModel([says('{"shop": "Tea & Co", "total": 12.5}')], media=True, per_message=True)

agent = Agent(
    model=script,
    prompt="You read receipts.",
    output_schema=Receipt,
)
