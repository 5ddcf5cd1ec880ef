"""A SQLite file and other users of the machine: warnings, and links that are not followed."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from tests.support.commands import passback

from passback.cli import EXIT_USAGE
from passback.core.errors import ConfigurationError
from passback.stores.sqlite import SqliteStore
from passback.stores.sqlite.file import connect, prepare_file
from passback.workers import EXIT_FAILED


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder / "store.db"


def _warnings(path: Path) -> list[str]:
    async def look() -> list[str]:
        async with SqliteStore(path) as store:
            return list(await store.check())

    return anyio.run(look)


@pytest.mark.parametrize("folder", [0o700, 0o755, 0o1777])
def test_a_private_file_makes_no_warning(path: Path, folder: int) -> None:
    assert _warnings(path) == []
    path.parent.chmod(folder)
    assert _warnings(path) == []


@pytest.mark.parametrize("mode", [0o666, 0o644, 0o640, 0o620])
def test_a_file_that_is_open_to_others_makes_a_warning(path: Path, mode: int) -> None:
    path.touch()
    path.chmod(mode)
    warning = f"The store's file {path} is open to other users of this machine (mode {mode:04o})"
    assert _warnings(path) == [f"{warning}: chmod 600 it."]


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_in_which_others_may_replace_the_file_makes_a_warning(
    path: Path, mode: int
) -> None:
    path.parent.chmod(mode)
    warning = "Other users of this machine can replace the store's file: its folder"
    advice = "chmod 700 it, or use a folder of your own."
    assert _warnings(path) == [f"{warning} {path.parent} has mode {mode:04o}. {advice}"]


def test_the_warning_is_shown_by_check(path: Path) -> None:
    path.touch()
    path.chmod(0o666)
    ended = passback("check", "--store", f"sqlite:///{path}")
    assert ended.returncode == 0
    assert f"warning: The store's file {path} is open to other users" in ended.stdout


@pytest.mark.parametrize("mode", [0o1777, 0o777])
@pytest.mark.parametrize("exists", [True, False])
def test_a_link_in_a_folder_that_all_share_is_not_followed(
    path: Path, tmp_path: Path, mode: int, exists: bool
) -> None:
    target = tmp_path / "victim"
    if exists:
        target.write_bytes(b"")
    path.symlink_to(target)
    path.parent.chmod(mode)
    with pytest.raises(ConfigurationError, match=r"is a symbolic link in a folder where everybody"):
        prepare_file(path)
    assert target.exists() is exists
    ended = passback("serve", "--port", "0", "--store", f"sqlite:///{path}")
    assert (ended.returncode, ended.stdout) == (EXIT_USAGE, "")
    assert ended.stderr.startswith(f"passback: PASSBACK_STORE: the store's file {path} is a symb")


def test_a_link_in_a_folder_of_ones_own_is_followed(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "elsewhere.db")
    assert _warnings(path) == []
    assert (tmp_path / "elsewhere.db").stat().st_size > 0


def test_a_path_that_sqlite_cannot_open_is_an_error_of_one_line(path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be used: SQLITE_CANTOPEN$"):
        connect(path.parent, 0.1)


@pytest.mark.parametrize("place", ["/proc/self/mem", "%00"])
def test_a_path_that_is_no_regular_file_is_an_error_without_a_traceback(place: str) -> None:
    ended = passback("check", "--store", f"sqlite:///{place}")
    assert ended.returncode in {EXIT_FAILED, EXIT_USAGE}
    assert "Traceback" not in ended.stderr + ended.stdout


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files to others")
@pytest.mark.parametrize("taken", ["store.db", "."])
def test_a_file_of_another_user_is_named_in_an_error(path: Path, taken: str) -> None:
    path.touch(mode=0o600)
    os.chown(path.parent / taken, 12345, -1)
    [warning] = _warnings(path)
    assert warning.startswith(f"{(path.parent / taken).resolve()} belongs to another user")


def test_a_probe_leaves_the_schema_of_a_newer_server_as_it_is(path: Path) -> None:
    async def probe() -> int:
        async with SqliteStore(path) as store:
            with closing(sqlite3.connect(path)) as newer:
                newer.execute("PRAGMA user_version = 1234")
                newer.commit()
                await store.check(briefly=True)
                version: int = newer.execute("PRAGMA user_version").fetchone()[0]
                return version

    assert anyio.run(probe) == 1234
