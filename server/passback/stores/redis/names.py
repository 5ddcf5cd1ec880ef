"""Names of the keys in Redis."""

from passback.core.messages import OwnerId
from passback.core.values import value
from passback.stores.layout import owner_tag


@value
class KeyNames:
    """The keys of one store.

    Args:
        prefix: the beginning of all names.
        one_server: one server has all keys, so that a script may use those of a conversation and
            the index together.
    """

    prefix: str
    one_server: bool

    @property
    def due(self) -> str:
        """The index of the conversations that are due for recovery."""
        return f"{self.prefix}:due"

    def inbox(self, owner: OwnerId, /) -> str:
        """Return the index of an owner's conversations that may owe something."""
        return f"{self.prefix}:owed:{owner_tag(owner)}"

    def spent(self, owner_tag: str, part: str, /) -> str:
        """Return the name of a count of what was spent; those of one owner are on one server."""
        return self._tagged_key(owner_tag, f"spent:{part}")

    @property
    def ready(self) -> str:
        """A key that `ping` writes to see whether writes are taken; it expires soon."""
        return f"{self.prefix}:ready"

    def state(self, tag: str, /) -> str:
        return self._tagged_key(tag, "state")

    def messages(self, tag: str, /) -> str:
        return self._tagged_key(tag, "messages")

    def receipts(self, tag: str, /) -> str:
        return self._tagged_key(tag, "receipts")

    def runs(self, tag: str, /) -> str:
        return self._tagged_key(tag, "runs")

    def queue(self, tag: str, /) -> str:
        return self._tagged_key(tag, "queue")

    def log(self, tag: str, run_id: str, /) -> str:
        return self._tagged_key(tag, f"log:{run_id}")

    def conversation_parts(self, tag: str, /) -> tuple[str, ...]:
        """Return all keys of a conversation but the logs."""
        ours = self._tagged_key(tag, "")
        return (ours + "state", ours + "messages", ours + "receipts", ours + "runs", ours + "queue")

    def with_index(self, *keys: str) -> tuple[str, ...]:
        """Return these keys, and the index behind them where a script may use both."""
        return (*keys, self.due) if self.one_server else keys

    def conversation_keys(self, tag: str, run_id: str, /) -> tuple[str, ...]:
        """Return the keys of `lua/conversation.lua`: the parts, the log of a run, and the index."""
        return self.with_index(*self.conversation_parts(tag), self.log(tag, run_id))

    def channel(self, tag: str, /) -> str:
        """Return the channel on which hints are published that a log has grown."""
        return f"{self.prefix}:{tag}"

    def _tagged_key(self, tag: str, part: str) -> str:
        return f"{self.prefix}:{{{tag}}}:{part}"
