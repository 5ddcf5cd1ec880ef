"""An agent whose tools keep a cart that clients see.

passback serve shared_state:agent
"""

from passback import Agent, ToolContext, tool
from passback.testing import ScriptedModel, calls, says


@tool
def add_to_cart(item: str, context: ToolContext) -> str:
    """Put an item into the cart."""
    kept = context.state.get("cart")
    cart = [*(kept if isinstance(kept, list) else []), item]
    context.state.set("cart", cart)
    return f"The cart has {len(cart)} items."


# plays what a real model would say; leave `model` out to use that of your settings
script = ScriptedModel(
    [
        calls(("add_to_cart", {"item": "tea"}), ("add_to_cart", {"item": "milk"})),
        says("Tea and milk are in your cart."),
    ],
    per_message=True,
)

agent = Agent(model=script, prompt="You run a shop.", tools=[add_to_cart])
