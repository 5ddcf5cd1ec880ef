"""Conversations in Redis: one server, Sentinel or a Cluster, shared by any number of workers."""

from passback.stores.redis.servers import Topology, parse_redis_url
from passback.stores.redis.store import RedisStore

__all__ = ["RedisStore", "Topology", "parse_redis_url"]
