"""An agent that is told what is known of whoever asks: the Markdown files of a folder for each
owner.

passback serve memory:agent
"""

import re
from pathlib import Path

from passback import Agent
from passback.messages import RunRef
from passback.testing import ScriptedModel, says

MEMORIES = Path("memories")  # from where `passback serve` is started
# an owner is the name of a key, or `anonymous`; a name such as `../ben` is refused
FOLDER = re.compile(r"[a-z0-9_-]{1,64}")
MOST = 8_000  # characters


# plain, so it runs in a thread; called once in each run
def remembered(run: RunRef) -> str:
    owner = run.key.owner
    if not FOLDER.fullmatch(owner):
        return ""
    files = sorted((MEMORIES / owner).glob("*.md"))
    # a link may lead out of the folder
    notes = [each.read_text("utf-8").strip() for each in files if not each.is_symlink()]
    return "What you know of this customer:\n\n" + "\n\n".join(notes)[:MOST] if notes else ""


# plays what a real model would say; leave `model` out to use that of your settings
script = ScriptedModel([says("Black tea, as ever?")], per_message=True)

agent = Agent(
    model=script,
    prompt="You keep a tea house.",
    context=remembered,
)
