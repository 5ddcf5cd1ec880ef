"""Wake-up hints from Redis: one subscriber connection for all waiting readers of a process."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from passback.core.errors import StoreError
from passback.stores.coordination import LogNotifications, LogWaiter
from passback.stores.redis.link import RedisLink
from passback.stores.redis.scripts import KeyNames
from passback.stores.redis.servers import BROKEN, Subscriber

logger = logging.getLogger(__name__)

CONFIRM_TIMEOUT = 1.0  # seconds to wait for a subscription before watching without it
RECONNECT_PAUSE = 0.5  # seconds
READ_TIMEOUT = 30.0  # seconds after which a silent connection is tried


class Hints:
    """Notify the waiters of a conversation when a message arrives on its channel.

    A hint is lost when the connection breaks or a subscription is late: each wait also ends by
    itself after a while.
    """

    def __init__(self, link: RedisLink, names: KeyNames) -> None:
        self._link = link
        self._names = names
        self._notifications = LogNotifications()
        self._needed = anyio.Event()
        self._lock = anyio.Lock()  # guards the subscriptions below
        self._subscriber: Subscriber | None = None
        self._subscribed: set[str] = set()
        self._confirmed: dict[str, anyio.Event] = {}
        self._is_lost = False

    @asynccontextmanager
    async def watching(self, tag: str, /) -> AsyncGenerator[LogWaiter]:
        """Give a waiter that is notified from now on."""
        self._needed.set()
        with self._notifications.registered(tag, LogWaiter()) as waiter:
            confirmed = self._confirmed.setdefault(tag, anyio.Event())
            with anyio.move_on_after(CONFIRM_TIMEOUT):
                async with self._lock:
                    # without a connection, `_subscribe_all` asks for this channel too
                    if self._subscriber is not None and tag not in self._subscribed:
                        self._subscribed.add(tag)
                        try:
                            await self._subscriber.subscribe(self._names.channel(tag))
                        except BROKEN:
                            # the listener meets the same error and reconnects
                            self._subscribed.discard(tag)
                await confirmed.wait()
            yield waiter

    def listens(self, tag: str, /) -> bool:
        """Return whether Redis counts this process among a conversation's listeners."""
        confirmed = self._confirmed.get(tag)
        return self._subscriber is not None and confirmed is not None and confirmed.is_set()

    async def listen(self) -> None:
        """Keep a connection once the first reader watches; run until cancelled."""
        await self._needed.wait()
        while True:
            try:
                await self._listen_once()
            except (*BROKEN, StoreError) as error:
                if not self._is_lost:  # else each attempt during an outage would be a line
                    logger.warning("wake-up hints from Redis broke off: %s", type(error).__name__)
                self._is_lost = True
            self._notifications.notify_all()
            await anyio.sleep(RECONNECT_PAUSE)

    async def _listen_once(self) -> None:
        async with self._link.listening() as subscriber, self._subscribe_all(subscriber):
            while True:
                message = await subscriber.get_message(timeout=READ_TIMEOUT)
                if message is not None:
                    channel: bytes = message["channel"]
                    tag = channel.decode().removeprefix(f"{self._names.prefix}:")
                    if message["type"] == "subscribe" and tag in self._confirmed:
                        self._confirmed[tag].set()
                    self._notifications.notify(tag)
                async with self._lock:
                    idle = self._subscribed - self._notifications.tags()
                    if idle:
                        await subscriber.unsubscribe(*map(self._names.channel, idle))
                        self._subscribed -= idle
                        for tag in idle:
                            self._confirmed.pop(tag, None)

    @asynccontextmanager
    async def _subscribe_all(self, subscriber: Subscriber) -> AsyncGenerator[None]:
        async with self._lock:
            self._subscribed = self._notifications.tags()
            # the first channel is no conversation's: it keeps the connection subscribed when all
            # others are gone
            await subscriber.subscribe(
                self._names.prefix, *map(self._names.channel, self._subscribed)
            )
            self._subscriber = subscriber
            self._is_lost = False
        try:
            yield
        finally:
            self._subscriber = None
