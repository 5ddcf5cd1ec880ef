"""Conversations in Redis: one server, Sentinel or a Cluster, shared by any number of workers.

All keys of a conversation bear one hash tag, so that each write is one script on one server:

    {prefix}:{tag}:state      hash    version, head, view, lease, queue, and records with names:
                                      field:{name}, receipt:{name}, run:{id}, queue:{id}
    {prefix}:{tag}:messages   list    the records of the messages
    {prefix}:{tag}:logs       zset    runs whose logs exist -> when these expire
    {prefix}:{tag}:log:{run}  stream  an entry per batch of events, its id is that of its last event

Beside them are `{prefix}:due`, `{prefix}:conversations:{owner}` and `{prefix}:inbox:{owner}`
(`indexes.py`), and, where owners have limits, the counts of what they spend,
`{prefix}:{owner}:spent:...`, which bear the owner's hash tag.

Leases go by the server's clock. Hints that a log has grown are published; a reader that misses one
reads the log a little later.
"""

from passback.stores.options import StoreOptions
from passback.stores.redis.servers import Topology, parse_redis_url
from passback.stores.redis.store import RedisStore

__all__ = ["RedisStore", "open_redis"]


def open_redis(
    topology: Topology, rest: str, options: StoreOptions, /, *, tls: bool = False
) -> RedisStore:
    """Return the store of a URL, of which `rest` is what stands behind the scheme.

    Raises:
        ConfigurationError: with what is wrong with the URL, never with a password in it.
    """
    return RedisStore(parse_redis_url(topology, rest, tls=tls), options)
