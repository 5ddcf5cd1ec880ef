"""`passback move` and `passback erase` in processes of their own, on files."""

import io
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import anyio
import pytest
from tests.support.commands import passback
from tests.support.ledgers import open_ledger
from tests.support.waiting import pause
from typing_extensions import override

from passback.commands.move import Progress
from passback.core.changes import dump_message
from passback.core.conversation.head import Head, dump_head, first_version
from passback.core.conversation.store import Guard, Query, Store, TakeLease, Wanted, Write
from passback.core.conversation.tree import Tree
from passback.core.ids import new_nonce
from passback.core.messages import ConversationId, ConversationKey, MessageId, OwnerId, UserMessage
from passback.engine.moving import hash_conversation

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]
LONG = 10**9  # milliseconds


def key_of(name: str, owner: str = "ann") -> ConversationKey:
    return ConversationKey(OwnerId(owner), ConversationId(name))


async def fill(store: Store, count: int, owner: str = "ann", *, messages: int = 2) -> None:
    for number in range(count):
        records = tuple(
            dump_message(UserMessage(MessageId(f"m-{each}"), "text")) for each in range(messages)
        )
        head = dump_head(Head(tree=Tree(messages - 1)))
        nonce = new_nonce()
        write = Write(
            key_of(f"c{number}", owner),
            nonce,
            Guard(version=0),
            first_version(nonce),
            head=head,
            messages=records,
            touches=True,
        )
        assert await store.apply(write) is not None


async def make(url: str, count: int = 3, owner: str = "ann", *, messages: int = 2) -> None:
    async with open_ledger(url) as ledger:
        await fill(ledger.store, count, owner, messages=messages)


async def listed(url: str, owner: str = "ann") -> Sequence[str]:
    async with open_ledger(url) as ledger:
        page = await ledger.store.query(Query(OwnerId(owner), "all", limit=1000))
        return [each.key.id for each in page.listed]


async def hashes(url: str, *names: str) -> Sequence[str]:
    async with open_ledger(url) as ledger:
        return [await hash_conversation(ledger.store, key_of(name)) for name in names]


@pytest.fixture
def urls(tmp_path: Path) -> tuple[str, str]:
    return f"sqlite:///{tmp_path}/from.db", f"sqlite:///{tmp_path}/to.db"


# ---------------------------------------------------------------- moves
async def test_all_conversations_are_moved_and_a_second_move_has_nothing_to_do(
    urls: tuple[str, str],
) -> None:
    source, target = urls
    await make(source, 3)
    moved = passback("move", source, target)
    assert (moved.returncode, moved.stderr) == (0, "")
    assert moved.stdout == (
        f"from  {source}\n"
        f"to    {target}\n"
        "found     3\n"
        "copied    3 of 3\n"
        "compared  3 of 3\n"
        "moved     3; 0 were there before\n"
        "equal     3 of 3 in the source; the target has 3 in all\n"
    )
    assert await listed(target) == await listed(source)
    names = await listed(source)
    assert await hashes(target, *names) == await hashes(source, *names)
    again = passback("move", source, target)
    assert again.returncode == 0
    assert "moved     0; 3 were there before\n" in again.stdout


async def test_what_is_not_moved_is_named_and_the_exit_code_says_so(
    urls: tuple[str, str],
) -> None:
    source, target = urls
    await make(source, 2)
    async with open_ledger(source) as ledger:
        key = key_of("runs\x1b[1m")
        write = Write(key, "a", Guard(version=0), head=dump_head(Head()))
        await ledger.store.apply(write)
        await ledger.store.apply(Write(key, "b", Guard(), lease=TakeLease("f", LONG)))
    await make(target, 1, messages=5)
    moved = passback("move", source, target)
    assert moved.returncode == 1
    assert moved.stdout.endswith(
        "moved     1; 1 were there before\n"
        "equal     1 of 3 in the source; the target has 2 in all\n"
        "left out  1 whose runs go on (--wait waits for their ends):\n"
        "          'runs\\x1b[1m' of 'ann'\n"
        "wrong     1:\n"
        "          'c0' of 'ann': the target has another conversation of this name, or it has "
        "changed\n"
        "Not all is moved. Nothing was overwritten; the same command goes on.\n"
    )


async def test_a_killed_move_goes_on(urls: tuple[str, str], tmp_path: Path) -> None:
    source, target = urls
    count = 400
    await make(source, count)
    command = [sys.executable, "-m", "passback", "move", source, target]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "server")}
    async with await anyio.open_process(command, stdout=subprocess.DEVNULL, env=environment) as one:
        while not (tmp_path / "to.db").exists() or len(await listed(target)) < 5:
            await pause(0.01)
        one.kill()
        await one.wait()
    there = len(await listed(target))
    moved = passback("move", source, target)
    assert moved.returncode == 0
    assert f"equal     {count} of {count} " in moved.stdout
    assert there >= 5
    before = int(moved.stdout.partition("; ")[2].partition(" ")[0])
    assert before >= there - 1  # one may have been unfinished


@pytest.mark.parametrize(
    ("source", "target", "error"),
    [
        ("mysql:x", "sqlite:///{0}/to.db", "FROM_URL: the store's URL has to begin with one of"),
        ("sqlite:///{0}/from.db", "mysql:x", "TO_URL: the store's URL has to begin with one of"),
        ("sqlite:///{0}/none.db", "sqlite:///{0}/to.db", "FROM_URL: there is no such file: {0}/no"),
        ("memory:", "sqlite:///{0}/to.db", "FROM_URL: a store in memory belongs to one process"),
        ("sqlite:///{0}/from.db", "memory:", "TO_URL: a store in memory belongs to one process"),
        (
            "sqlite:///{0}/from.db",
            "sqlite:///{0}/./from.db",
            "FROM_URL and TO_URL are the same store: sqlite:///{0}/from.db",
        ),
        ("sqlite:///{0}/text", "sqlite:///{0}/to.db", "FROM_URL: "),
        ("sqlite:///{0}/from.db", "sqlite:///{0}/text", "TO_URL: "),
    ],
)
async def test_stores_that_cannot_be_used_are_refused_before_anything_is_done(
    source: str, target: str, error: str, tmp_path: Path
) -> None:
    await make(f"sqlite:///{tmp_path}/from.db")
    (tmp_path / "text").write_text("not a database, but a text that is long enough to be one")
    ended = passback("move", source.format(tmp_path), target.format(tmp_path))
    assert ended.returncode in (1, 2)
    assert ended.stderr.startswith(f"passback: {error.format(tmp_path)}"), ended.stderr
    assert not (tmp_path / "none.db").exists()


def test_no_password_is_shown(tmp_path: Path) -> None:
    secret = "redis://:sEkrEt@127.0.0.1:1"
    wrong = f"{secret}/0?x=sEkrEt"
    for arguments in (
        ["move", secret, f"sqlite:///{tmp_path}/to.db"],
        ["move", secret, secret],
        ["move", wrong, secret],
        ["move", secret, wrong],
        ["move", secret, secret, secret],
        ["erase", "--owner", "ann", "--store", wrong],
    ):
        ended = passback(*arguments)
        assert ended.returncode
        assert "sEkrEt" not in ended.stdout + ended.stderr


# ---------------------------------------------------------------- progress
class Terminal(io.StringIO):
    @override
    def isatty(self) -> bool:
        return True


def shown(out: IO[str]) -> str:
    progress = Progress(out)
    progress.show("list", 2, 0)
    for done in (1, 2):
        progress.show("copy", done, 2)
    progress.end()
    progress.end()
    assert isinstance(out, io.StringIO)
    return out.getvalue()


def test_a_terminal_gets_a_bar_and_others_get_lines() -> None:
    assert shown(io.StringIO()) == "found     2\ncopied    2 of 2\n"
    assert shown(Terminal()) == (f"\r\x1b[Kfound     2\n\r\x1b[K[{'#' * 30}] copied    2 of 2\n")


def test_a_bar_grows_with_time() -> None:
    now = [100.0]
    out = Terminal()
    progress = Progress(out, lambda: now[0])
    for done in range(1, 5):
        now[0] += 0.06
        progress.show("copy", done, 4)
    bar = f"[{'#' * 15}{'-' * 15}] copied    2 of 4"
    assert out.getvalue() == f"\r\x1b[K{bar}\r\x1b[K[{'#' * 30}] copied    4 of 4"


# ---------------------------------------------------------------- erasing
async def test_all_conversations_of_an_owner_are_erased(urls: tuple[str, str]) -> None:
    url = urls[0]
    for owner in ("ann", "annie"):
        await make(url, 3, owner)
    ended = passback("erase", "--owner", "ann", "--store", url)
    assert (ended.returncode, ended.stdout, ended.stderr) == (
        0,
        f"deleted 3 conversations of 'ann' in {url}\n",
        "",
    )
    assert (await listed(url), len(await listed(url, "annie"))) == ([], 3)
    again = passback("erase", "--owner", "ann", PASSBACK_STORE=url)
    assert again.stdout.startswith("deleted 0 conversations of 'ann'")
    async with open_ledger(url) as ledger:
        assert not (await ledger.store.read(key_of("c0"), Wanted())).version


async def test_an_owner_has_to_be_named(urls: tuple[str, str]) -> None:
    ended = passback("erase", "--store", urls[0])
    assert ended.returncode == 2
    assert "--owner" in ended.stderr


@pytest.mark.parametrize(
    ("owner", "store", "error"),
    [
        ("ann", "sqlite:///{0}/none.db", "PASSBACK_STORE: there is no such file: {0}/none.db"),
        ("ann", "memory:", "PASSBACK_STORE: a store in memory belongs to one process"),
        ("", "sqlite:///{0}/from.db", "--owner: name one; without API keys it is anonymous"),
    ],
)
async def test_what_cannot_be_erased_is_refused(
    owner: str, store: str, error: str, urls: tuple[str, str], tmp_path: Path
) -> None:
    await make(urls[0], 1)
    ended = passback("erase", "--owner", owner, "--store", store.format(tmp_path))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"passback: {error.format(tmp_path)}")
    assert not (tmp_path / "none.db").exists()
