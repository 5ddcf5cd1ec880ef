"""The compose file with PostgreSQL is the one with Redis, but for its store."""

import importlib
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

from passback.settings import load_settings
from passback.stores.open import open_store

ROOT = Path(__file__).parents[2]
YAML = importlib.import_module("yaml")  # untyped
COMPOSE = (ROOT / "docker-compose.postgres.yml").read_text("utf-8")
FILE: dict[str, Any] = YAML.safe_load(COMPOSE)
OTHER: dict[str, Any] = YAML.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
WORKERS = ("worker-1", "worker-2")
SECRET = "ab12" * 16


def without_store(file: dict[str, Any]) -> dict[str, Any]:
    """Return a compose file without all that names its store."""
    rest = deepcopy(file)
    del rest["volumes"]
    for name in ("postgres", "redis"):
        rest["services"].pop(name, None)
    for name in WORKERS:
        # both are one and the same by an alias of YAML
        rest["services"][name]["environment"].pop("PASSBACK_STORE", None)
        rest["services"][name].pop("depends_on", None)
    return rest


def test_all_but_the_store_is_as_in_the_other_file() -> None:
    assert without_store(FILE) == without_store(OTHER)
    assert set(FILE["services"]) - set(OTHER["services"]) == {"postgres"}
    for name in WORKERS:
        ready = {"postgres": {"condition": "service_healthy"}}
        assert FILE["services"][name]["depends_on"] == ready


def test_only_the_workers_reach_postgresql_which_has_no_rights() -> None:
    postgres = FILE["services"]["postgres"]
    assert postgres["networks"] == ["store"]
    assert "ports" not in postgres
    assert postgres["user"] == "postgres"
    assert postgres["cap_drop"] == ["ALL"]
    assert postgres["security_opt"] == ["no-new-privileges:true"]
    [volume] = postgres["volumes"]
    assert volume == "postgres:/var/lib/postgresql/data"
    assert set(FILE["volumes"]) == {"postgres"}


def test_postgresql_needs_a_password_that_has_no_default() -> None:
    # each mention requires it, none has a default
    assert COMPOSE.count("${POSTGRES_PASSWORD") == COMPOSE.count("${POSTGRES_PASSWORD:?") == 2
    postgres = FILE["services"]["postgres"]
    # nothing is trusted, nor weaker than the server's defaults
    assert "command" not in postgres
    assert postgres["environment"] == {
        "POSTGRES_USER": "passback",
        "POSTGRES_DB": "passback",
        "POSTGRES_PASSWORD": "${POSTGRES_PASSWORD:?}",
    }


def test_the_workers_have_the_url_of_the_store() -> None:
    for name in WORKERS:
        given = FILE["services"][name]["environment"]["PASSBACK_STORE"]
        url = re.sub(r"\$\{POSTGRES_PASSWORD:\?[^}]*\}", SECRET, given)
        keys = {"PASSBACK_API_KEYS": f"you:{SECRET}"}
        assert load_settings({"PASSBACK_STORE": url, **keys}).store == url
        assert open_store(url).location == "postgresql://passback@postgres:5432/passback"
