"""The reserve for deletions: taken where there is room, given back on a disk that is full."""

import os
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint
from tests.support.server import running_server
from tests.support.wire import client_of, user

from passback.stores.sqlite.file import RESERVE_BYTES, Reserve

pytestmark = pytest.mark.anyio

DISK = "12m"
"""The smallest possible size: the reserve needs twice as much free space."""
POST = "x" * 200_000
# in namespaces of its own, so that the file system goes with the process; the second is for those
# who may not make users
_OWN_MOUNTS = (("unshare", "--user", "--map-root-user", "--mount"), ("unshare", "--mount"))
_MOUNTED = f'mount -t tmpfs -o size={DISK} tmpfs "$0" && exec "$@"'


def test_the_reserve_is_filled_once_and_released_once(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path / "a.db")
    for _ in range(2):
        reserve.fill()
        assert [(path.name, path.stat().st_size) for path in tmp_path.iterdir()] == [
            ("a.db-reserve", RESERVE_BYTES)
        ]
        assert [reserve.release(), reserve.release()] == [True, False]
    assert list(tmp_path.iterdir()) == []


def test_a_reserve_that_cannot_be_filled_is_not_released(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path / "nowhere" / "a.db")
    reserve.fill()
    assert not reserve.release()


@cache
def mounting(folder: Path) -> tuple[str, ...]:
    """Return a command that runs another one with a small file system of its own at this folder."""
    for begin in _OWN_MOUNTS:
        command = (*begin, "sh", "-c", _MOUNTED, str(folder))
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            return command
    if os.environ.get("CI"):
        pytest.fail("nobody may mount a file system here")
    pytest.skip("nobody may mount a file system here")


async def test_on_a_full_disk_deleting_makes_room_for_new_posts(tmp_path: Path) -> None:
    command = (*mounting(tmp_path), sys.executable, "-m", "passback", "serve")
    flags = ("--store", f"sqlite:///{tmp_path}/store.db", "--model", "demo:fast")
    with anyio.fail_after(25):
        async with (
            running_server(*flags, command=command, stderr=subprocess.DEVNULL) as server,
            client_of(server.url) as client,
        ):
            for name in ("one", "two"):
                assert (await client.post(name, user(POST))).status == 200
            _fill(Path(f"/proc/{server.process.pid}/root{tmp_path}"))
            refused = await client.post("three", user(POST))
            assert (refused.status, refused.json["code"]) == (503, "store_full")
            ready = await client.http.get("/readyz")
            assert (ready.status_code, ready.json()["code"]) == (503, "store_full")
            assert (await client.http.get("/conversations/one/messages")).status_code == 200
            for name in ("one", "two"):
                deleted = await client.http.delete(f"/conversations/{name}")
                assert deleted.status_code == 204, deleted.text
            assert (await client.post("three", user(POST))).status == 200
            while (await client.http.get("/readyz")).status_code != 200:
                await checkpoint()


def _fill(folder: Path) -> None:
    """Take what is left of the file system, to the last byte."""
    with (folder / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
