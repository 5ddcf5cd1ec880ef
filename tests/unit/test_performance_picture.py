"""The picture of the performance page shows the figures of its tables."""

from pathlib import Path

from benchmarks.picture import PAGE, PICTURE, draw


def test_the_picture_is_that_of_the_page() -> None:
    assert PICTURE.read_text() == draw(PAGE.read_text())


def test_the_page_shows_the_picture() -> None:
    target = Path("..") / "images" / PICTURE.name
    assert f"]({target.as_posix()})" in PAGE.read_text()


def test_the_lines_of_the_page_are_those_of_its_tables() -> None:
    page = PAGE.read_text()
    lines = page.partition("## The method")[0]
    passback = _row(page, "passback, redis")
    plain = _row(page, "plain server, Redis history")
    assert f"{float(passback[1]):.1f} times" in lines  # x proxy
    assert f"{float(plain[3]):.1f} times" in lines  # x passback
    assert f"{float(passback[6]):.1f} ms" in lines  # to the first event


def _row(page: str, server: str) -> list[str]:
    table = page.partition("### paced\n")[2].partition("\n###")[0]
    [line] = [line for line in table.splitlines() if line.startswith(f"| {server} ")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]
