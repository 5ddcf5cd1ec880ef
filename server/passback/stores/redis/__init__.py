"""Conversations in Redis: one server, Sentinel or a Cluster, shared by any number of workers."""

from passback.stores.redis.store import RedisStore
from passback.stores.redis.url import Topology, parse_redis_url

__all__ = ["RedisStore", "Topology", "parse_redis_url"]
