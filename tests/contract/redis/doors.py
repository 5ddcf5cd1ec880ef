"""Opening the store on Redis, and what its servers have of a conversation."""

from passback.core.ids import conversation_tag
from passback.core.messages import ConversationKey
from passback.stores.options import StoreOptions
from passback.stores.redis import RedisStore, open_redis
from passback.stores.redis.servers import Topology

TOPOLOGIES: dict[str, Topology] = {"": "single", "sentinel": "sentinel", "cluster": "cluster"}


def open_door(url: str, options: StoreOptions | None = None) -> RedisStore:
    scheme, _, rest = url.partition(":")
    name, _, topology = scheme.partition("+")
    chosen = options or StoreOptions()
    return open_redis(TOPOLOGIES[topology], rest, chosen, tls=name == "rediss")


def key_name(key: ConversationKey, part: str) -> str:
    """Return the name of a key of a conversation."""
    return f"pb:{{{conversation_tag(key)}}}:{part}"
