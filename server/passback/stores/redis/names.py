"""How the keys in Redis are named."""

from passback.core.messages import OwnerId
from passback.core.values import value
from passback.stores.layout import owner_tag


@value
class Names:
    """The keys of one store.

    Args:
        prefix: what all names begin with.
        one_server: whether one server has all keys, so that a script may use those of a conversation and the index.
    """

    prefix: str
    one_server: bool

    @property
    def due(self) -> str:
        """The index of the conversations to look after."""
        return f"{self.prefix}:due"

    def inbox(self, owner: OwnerId, /) -> str:
        """The index of the conversations of an owner that may owe something."""
        return f"{self.prefix}:owed:{owner_tag(owner)}"

    def spent(self, owner_tag: str, part: str, /) -> str:
        """A count of what was spent; those of one owner are on one server."""
        return self._key(owner_tag, f"spent:{part}")

    @property
    def ready(self) -> str:
        """Written to see whether writes are taken; of no meaning, and gone soon."""
        return f"{self.prefix}:ready"

    def state(self, tag: str, /) -> str:
        return self._key(tag, "state")

    def messages(self, tag: str, /) -> str:
        return self._key(tag, "messages")

    def receipts(self, tag: str, /) -> str:
        return self._key(tag, "receipts")

    def runs(self, tag: str, /) -> str:
        return self._key(tag, "runs")

    def queue(self, tag: str, /) -> str:
        return self._key(tag, "queue")

    def log(self, tag: str, run_id: str, /) -> str:
        return self._key(tag, f"log:{run_id}")

    def parts(self, tag: str, /) -> tuple[str, ...]:
        """All keys of a conversation but the logs."""
        ours = self._key(tag, "")
        return (ours + "state", ours + "messages", ours + "receipts", ours + "runs", ours + "queue")

    def with_index(self, *keys: str) -> tuple[str, ...]:
        """These keys, and the index behind them where a script may use both."""
        return (*keys, self.due) if self.one_server else keys

    def whole(self, tag: str, run_id: str, /) -> tuple[str, ...]:
        """What `lua/conversation.lua` expects: the parts, the log of a run, and the index."""
        return self.with_index(*self.parts(tag), self.log(tag, run_id))

    def channel(self, tag: str, /) -> str:
        """Where hints are published that a log has grown."""
        return f"{self.prefix}:{tag}"

    def _key(self, tag: str, part: str) -> str:
        return f"{self.prefix}:{{{tag}}}:{part}"
