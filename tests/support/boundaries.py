"""A step of a conversation's life that no agent takes by itself yet: its boundary moves. See `tests.support.moves`."""

from tests.support.lives import Life
from tests.support.walks import Pick

from passback.core.changes import Change
from passback.core.messages import new_nonce


async def a_boundary_is_set(life: Life, pick: Pick) -> None:
    """Between two runs: the model is not shown any more what was said before."""
    loaded = await life.store.load(life.key)
    status = loaded.status
    if status.running or status.owed or status.queued or status.version == 0:
        return
    state = status.state.with_history_start(status.message_count, loaded.messages)
    await life.store.park(Change(life.key, new_nonce(), status.version, state=state))
