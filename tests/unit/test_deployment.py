"""What starts the server for others, the image and the compose file, opens nothing by itself and keeps no secret."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
COMPOSE = (ROOT / "docker-compose.yml").read_text("utf-8")


def test_neither_the_image_nor_the_compose_file_allows_everybody_by_itself() -> None:
    settings = re.sub(r"^\s*#.*\n", "", DOCKERFILE, flags=re.MULTILINE)
    assert "PASSBACK_HOST=0.0.0.0" in settings
    assert "PASSBACK_ALLOW_ANONYMOUS" not in settings
    assert "PASSBACK_API_KEYS" not in settings
    for name in ("PASSBACK_ALLOW_ANONYMOUS", "PASSBACK_API_KEYS"):
        assert re.findall(rf"^ +{name}: (.*)$", COMPOSE, re.MULTILINE) == [f"${{{name}:-}}"]
