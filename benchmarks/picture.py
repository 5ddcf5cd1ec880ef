"""Draw the picture of docs/explanation/performance.md from the tables of that page.

Usage: python -m benchmarks.picture
"""

import re
import sys
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "explanation" / "performance.md"
PICTURE = PAGE.parents[1] / "images" / "performance.svg"
# rows of the table `paced`, and how the picture names them
SHOWN = {
    "proxy": "minimal proxy, stores nothing",
    "passback, redis": "passback, Redis",
    "plain server, Redis history": "plain server, Redis history",
}
BAR = 340  # pixels of the longest
ROW = 34  # pixels from one bar to the next
LEFT = 230  # pixels for the names


def main() -> int:
    PICTURE.write_text(draw(PAGE.read_text()))
    return 0


def draw(page: str, /) -> str:
    """Return the picture: CPU time for 1,000 deltas of paced streams, a bar for each server."""
    costs = {label: read_cost(page, server) for server, label in SHOWN.items()}
    height = ROW * len(costs) + 40
    most = max(costs.values())
    bars = "".join(
        draw_bar(label, cost, cost / most, 36 + ROW * number)
        for number, (label, cost) in enumerate(costs.items())
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="660" height="{height}" '
        f'viewBox="0 0 660 {height}" role="img" font-family="sans-serif" font-size="14">\n'
        "<title>CPU time of the server for 1,000 streamed deltas</title>\n"
        '<rect width="100%" height="100%" fill="#fff"/>\n'
        '<text x="8" y="22" fill="#111">CPU milliseconds for 1,000 streamed deltas '
        "(less is better)</text>\n"
        f"{bars}</svg>\n"
    )


def read_cost(page: str, server: str) -> float:
    """Return the milliseconds of a server in the table `paced`."""
    [table] = re.findall(r"^### paced\n\n(.*?)\n\n", page, re.MULTILINE | re.DOTALL)
    [cost] = re.findall(rf"^\| {re.escape(server)} +\| +([\d.]+) \|", table, re.MULTILINE)
    return float(cost)


def draw_bar(label: str, cost: float, share: float, top: int) -> str:
    width = round(BAR * share)
    color = "#2563eb" if label.startswith("passback") else "#9ca3af"
    return (
        f'<text x="{LEFT - 10}" y="{top + 16}" text-anchor="end" fill="#111">{label}</text>\n'
        f'<rect x="{LEFT}" y="{top}" width="{width}" height="22" fill="{color}"/>\n'
        f'<text x="{LEFT + width + 8}" y="{top + 16}" fill="#111">{cost:.0f} ms</text>\n'
    )


if __name__ == "__main__":
    sys.exit(main())
