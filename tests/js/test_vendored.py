"""The libraries of the playground are the files of their npm packages."""

import json
import re
from pathlib import Path

import pytest

import vendored
from passback.wire.page import read_page_files

pytestmark = pytest.mark.node

PINNED = json.loads((Path(__file__).parent / "package.json").read_text())["devDependencies"]


def test_each_file_is_that_of_the_pinned_version() -> None:
    """If this fails, run scripts/generate."""
    expected = vendored.expected_files()
    assert expected.keys() == {"LICENSES.txt", "highlight.js", "markdown-it.js"}
    for name, content in expected.items():
        assert (vendored.FOLDER / name).read_bytes() == content, name


def test_each_package_has_its_version_and_its_licence_beside_it() -> None:
    licences = vendored.licences()
    for name in ("@highlightjs/cdn-assets", "markdown-it"):
        assert f"{name} {PINNED[name]}" in licences
    # the comments of the file name each package that it was built of
    bundled = (vendored.FOLDER / "markdown-it.js").read_text(encoding="utf-8")
    parts = set(re.findall(r"^//#region node_modules/((?:@[^/]+/)?[^/]+)/", bundled, re.MULTILINE))
    assert parts
    assert parts <= {name.partition(" ")[0] for name in licences}


def test_the_page_has_them() -> None:
    roots = (vendored.FOLDER.parents[1],)
    served = {path for path in read_page_files(roots) if "/vendor/" in path}
    assert served == {f"/playground/vendor/{name}" for name in vendored.COPIES}
