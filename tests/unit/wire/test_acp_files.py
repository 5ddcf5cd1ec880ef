"""The file state cache: no write undoes a change that the model has not seen."""

import pytest

from passback.wire.acp.files import FileCache, replace_piece

PATH = "/srv/a.py"


def known(text: str) -> FileCache:
    cache = FileCache()
    cache.note(PATH, text)
    return cache


def test_what_the_model_has_seen_may_be_written() -> None:
    cache = known("one\n")
    assert cache.text(PATH) == "one\n"
    assert cache.find_objection(PATH, "one\n") is None


def test_a_new_file_may_be_written() -> None:
    cache = FileCache()
    assert cache.text(PATH) is None
    assert cache.find_objection(PATH, None) is None


def test_a_file_that_was_not_read_is_not_written_over() -> None:
    assert "Read it first" in (FileCache().find_objection(PATH, "theirs") or "")


def test_a_change_is_told_and_counts_as_seen() -> None:
    cache = known("one\ntwo\nthree\n")
    objection = cache.find_objection(PATH, "one\nTWO\nthree\n") or ""
    assert "-two\n+TWO" in objection
    assert cache.find_objection(PATH, "one\nTWO\nthree\n") is None


def test_a_change_of_line_ends_alone_is_a_change() -> None:
    objection = known("one\r\n").find_objection(PATH, "one\n") or ""
    assert "line ends" in objection


def test_a_file_that_is_gone_is_told_once() -> None:
    cache = known("one")
    assert "gone" in (cache.find_objection(PATH, None) or "")
    assert cache.find_objection(PATH, None) is None


@pytest.mark.parametrize(
    "after",
    ["x" * (1024 * 1024 + 1), "\n".join(map(str, range(1000)))],
    ids=["too large", "too many lines"],
)
def test_a_change_that_is_too_long_to_tell_has_to_be_read(after: str) -> None:
    cache = known("one\n" * 500)
    assert "Read it again" in (cache.find_objection(PATH, after) or "")
    assert "Read it first" in (cache.find_objection(PATH, after) or "")


def test_of_a_large_file_only_the_digest_is_kept() -> None:
    large = "x" * (1024 * 1024 + 1)
    cache = known(large)
    assert cache.text(PATH) is None
    assert cache.find_objection(PATH, large) is None
    assert "Read it again" in (cache.find_objection(PATH, "small") or "")


def test_the_oldest_files_are_forgotten() -> None:
    cache = FileCache()
    texts = {f"/srv/{number}": str(number) * 1024 * 1024 for number in range(10, 27)}
    for path, text in texts.items():
        cache.note(path, text[: 1024 * 1024])
    kept = [path for path in texts if cache.text(path) is not None]
    assert kept == [*texts][-16:]


def test_a_file_that_is_noted_again_is_held_once() -> None:
    cache = FileCache()
    for _ in range(40):
        cache.note(PATH, "x" * 1024 * 1024)
        cache.note("/srv/other", "y")
    assert cache.text(PATH) is not None
    assert cache.text("/srv/other") == "y"


# ---------------------------------------------------------------- parts of files
def test_a_file_of_which_a_part_was_read_is_edited_and_not_replaced() -> None:
    cache = FileCache()
    cache.note_part(PATH, "one\ntwo\n")
    assert "Read all of it" in (cache.find_objection(PATH, "one\ntwo\n") or "")
    assert cache.find_objection(PATH, "one\ntwo\n", replaces=False) is None
    cache.note_change(PATH, "uno\ntwo\n")
    assert cache.find_objection(PATH, "uno\ntwo\n", replaces=False) is None
    assert "Read all of it" in (cache.find_objection(PATH, "uno\ntwo\n") or "")


def test_a_file_of_which_a_part_was_read_is_not_edited_when_it_has_changed() -> None:
    cache = FileCache()
    cache.note_part(PATH, "one\n")
    assert "-one\n+uno" in (cache.find_objection(PATH, "uno\n", replaces=False) or "")
    assert cache.find_objection(PATH, "uno\n", replaces=False) is None
    assert "Read all of it" in (cache.find_objection(PATH, "uno\n") or "")


def test_a_part_that_is_read_again_leaves_all_of_it_known() -> None:
    cache = known("one\ntwo\n")
    cache.note_part(PATH, "one\ntwo\n")
    assert cache.find_objection(PATH, "one\ntwo\n") is None
    cache.note_part(PATH, "uno\ntwo\n")
    assert "Read all of it" in (cache.find_objection(PATH, "uno\ntwo\n") or "")


@pytest.mark.parametrize(
    ("text", "old", "new", "result", "count"),
    [
        ("a\nb\n", "a\nb", "c\nd", "c\nd\n", 1),
        ("a\r\nb\r\n", "a\nb", "c\nd", "c\r\nd\r\n", 1),
        ("a\r\nb\r\n", "a\r\nb", "c\r\nd", "c\r\nd\r\n", 1),
        ("a\r\nb\r\n", "b", "c\nd", "a\r\nc\r\nd\r\n", 1),
        ("a\nb\r\nc\n", "b", "d\ne", "a\nd\ne\r\nc\n", 1),
        ("a\nb\r\nc\n", "b\nc", "d\ne", "a\nd\r\ne\n", 1),
        ("a\r\na\r\n", "a\n", "b\n", "b\r\nb\r\n", 2),
        ("a\nb\n", "c\n", "d", "a\nb\n", 0),
    ],
)
def test_a_piece_is_replaced_whatever_ends_the_lines(
    text: str, old: str, new: str, result: str, count: int
) -> None:
    assert replace_piece(text, old, new) == (result, count)
