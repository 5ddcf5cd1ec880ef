"""Wake-up hints from Redis: one subscriber connection per process, however many readers wait."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from passback.core.errors import StoreError
from passback.stores.notifications import LogNotifications, LogWaiter
from passback.stores.redis.errors import REDIS_ERRORS
from passback.stores.redis.link import RedisLink
from passback.stores.redis.names import Names
from passback.stores.redis.servers import Subscriber

logger = logging.getLogger(__name__)

CONFIRM_TIMEOUT = 1.0  # seconds to wait for a subscription before watching without it
RECONNECT_PAUSE = 0.5
READ_TIMEOUT = 30.0  # seconds after which a silent connection is tried


class Hints:
    """Rings the bells of a conversation when its channel speaks.

    A hint may be lost, when the connection breaks or a subscription is late: a bell's wait ends by itself after a while.
    """

    def __init__(self, link: RedisLink, names: Names) -> None:
        self._link = link
        self._names = names
        self._bells = LogNotifications()
        self._needed = anyio.Event()
        self._turn = anyio.Lock()  # for the subscriptions below
        self._subscriber: Subscriber | None = None
        self._asked: set[str] = set()
        self._confirmed: dict[str, anyio.Event] = {}

    @asynccontextmanager
    async def watching(self, tag: str, /) -> AsyncGenerator[LogWaiter]:
        """A bell that rings from now on."""
        self._needed.set()
        with self._bells.hung(tag, LogWaiter()) as bell:
            confirmed = self._confirmed.setdefault(tag, anyio.Event())
            with anyio.move_on_after(CONFIRM_TIMEOUT):
                await self._subscribe(tag)
                await confirmed.wait()
            yield bell

    async def listen(self) -> None:
        """Keep a connection as soon as somebody watches; runs until it is cancelled."""
        await self._needed.wait()
        while True:
            try:
                await self._listen_once()
            except (*REDIS_ERRORS, StoreError, OSError, RuntimeError) as error:
                logger.warning("wake-up hints from Redis broke off: %s", type(error).__name__)
            self._bells.ring_all()
            await anyio.sleep(RECONNECT_PAUSE)

    async def _listen_once(self) -> None:
        async with self._link.listening() as subscriber:
            try:
                await self._subscribe_all(subscriber)
                while True:
                    message = await subscriber.get_message(timeout=READ_TIMEOUT)
                    if message is not None:
                        self._hear(message["type"], message["channel"])
                    await self._unsubscribe_idle(subscriber)
            finally:
                self._subscriber = None

    def _hear(self, kind: str, channel: bytes) -> None:
        tag = channel.decode().removeprefix(f"{self._names.prefix}:")
        if kind == "subscribe" and tag in self._confirmed:
            self._confirmed[tag].set()
        self._bells.ring(tag)

    async def _subscribe_all(self, subscriber: Subscriber) -> None:
        async with self._turn:
            self._asked = self._bells.tags()
            # The first name is nobody's: it keeps the connection subscribed when all others are gone.
            await subscriber.subscribe(self._names.prefix, *map(self._names.channel, self._asked))
            self._subscriber = subscriber

    async def _subscribe(self, tag: str) -> None:
        """Ask for a channel; without a connection the listener asks for all when it has one."""
        async with self._turn:
            if self._subscriber is None or tag in self._asked:
                return
            self._asked.add(tag)
            try:
                await self._subscriber.subscribe(self._names.channel(tag))
            except (*REDIS_ERRORS, OSError):
                self._asked.discard(tag)  # the listener meets the same error and begins anew

    async def _unsubscribe_idle(self, subscriber: Subscriber) -> None:
        async with self._turn:
            idle = self._asked - self._bells.tags()
            if idle:
                await subscriber.unsubscribe(*map(self._names.channel, idle))
                self._asked -= idle
                self._confirmed = {tag: e for tag, e in self._confirmed.items() if tag not in idle}
