"""Show the licence of each package that passback runs on; fail when one may not go with Apache-2.0.

The libraries of the playground are among them.

Usage: python scripts/licences.py [--table]
"""

import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution

import vendored
from repository import ROOT

# permissive, or (MPL, PSF) without a claim on those who only import the package
COMPATIBLE = {
    "0BSD", "Apache", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause",
    "ISC", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0",
}  # fmt: skip
# what packages write instead of an SPDX name
SPDX_NAMES = {
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}


def main() -> int:
    failed = False
    for name, found in [*python_licences(), *vendored.licences().items()]:
        parts = set(re.split(r" (?:AND|OR|WITH) |[()]", found or "")) - {""}
        bad = not parts <= COMPATIBLE
        failed |= bad
        if bad or "--table" in sys.argv:
            print(f"| {name} | {found or 'not used on this machine'} |{' NOT KNOWN TO FIT' * bad}")
    return 1 if failed else 0


def python_licences() -> Iterator[tuple[str, str | None]]:
    for name in locked_packages():
        try:
            yield name, find_licence(distribution(name))
        except PackageNotFoundError:
            yield name, None  # for another platform or Python


def find_licence(package: Distribution, /) -> str:
    """Return an SPDX expression where the package gives one, else its own short word."""
    if expressions := metadata_fields(package, "License-Expression"):
        return expressions[0]
    classifiers = metadata_fields(package, "Classifier")
    classified = [one.split(" :: ")[-1] for one in classifiers if one.startswith("License :: OSI")]
    first = [*classified, *metadata_fields(package, "License"), "unknown"][0]
    if "Redistribution and use in source and binary forms" in first:
        return "BSD"  # the whole text instead of its name
    return SPDX_NAMES.get(first, first)


def metadata_fields(package: Distribution, name: str) -> list[str]:
    return package.metadata.get_all(name) or []


def locked_packages() -> list[str]:
    text = (ROOT / "requirements" / "extras.txt").read_text()
    return re.findall(r"^([\w.-]+)==", text, re.MULTILINE)


if __name__ == "__main__":
    sys.exit(main())
