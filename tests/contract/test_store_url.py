"""URLs of stores: which one is meant, and errors that never show a password."""

from pathlib import Path

import pytest

from passback.core.errors import ConfigurationError
from passback.stores.open import open_store
from passback.stores.options import StoreOptions

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("memory:", "memory:"),
        ("memory://", "memory:"),
        ("sqlite:////var/lib/a%20b.db", "sqlite:////var/lib/a b.db"),
        ("sqlite:///here.db", f"sqlite:///{Path.cwd()}/here.db"),
        ("sqlite:///~/here.db", f"sqlite:///{Path.home()}/here.db"),
        ("redis://localhost", "redis://localhost:6379/0"),
        ("REDIS://localhost:7000/3", "redis://localhost:7000/3"),
        ("redis://localhost?db=3", "redis://localhost:6379/3"),
        (f"redis://user:{SECRET}@[::1]:7000/3", "redis://[::1]:7000/3"),
        (f"rediss://:{SECRET}@host?ssl_ca_certs=/ca.pem", "rediss://host:6379/0"),
        (
            f"redis+sentinel://u:{SECRET}@one,two:7/main?db=2",
            "redis+sentinel://one:26379,two:7/main?db=2",
        ),
        (f"redis+cluster://:{SECRET}@one:1,two", "redis+cluster://one:1,two:6379"),
        (f"rediss+cluster://:{SECRET}@one", "rediss+cluster://one:6379"),
        (f"postgresql://user:{SECRET}@host:7000/main", "postgresql://user@host:7000/main"),
        (f"postgres://u%40:{SECRET}@[::1]/main", "postgresql://u%40@[::1]/main"),
        ("POSTGRESQL:///main", "postgresql:///main"),
        (
            f"postgresql://u:{SECRET}@one:1,two:2/main?sslmode=verify-full&password={SECRET}",
            "postgresql://u@one:1,two:2/main",
        ),
    ],
)
def test_a_url_names_a_store_and_its_location_hides_the_login(url: str, location: str) -> None:
    assert open_store(url).location == location


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "has to begin with one of sqlite:"),
        ("mysql://u:hunter2@host/db", "has to begin with one of"),
        ("postgresql:hunter2", "postgresql://USER"),
        ("postgresql://u:hunter2@host", "postgresql://USER"),
        ("postgresql://u:hunter2@host:many/main", "postgresql://USER"),
        ("postgres://u:hun/ter2@host/main", "percent-encode"),
        ("postgres://u:hun@ter2@host/main", "percent-encode"),
        ("postgres://u:hun:ter2@host/main", "percent-encode"),
        ("postgresql://u:hunter2@host/main#hunter2", "postgresql://USER"),
        ("/var/lib/passback.db", "has to begin with one of"),
        ("memory:hunter2", "nothing more"),
        ("sqlite:", "sqlite:///FILE"),
        ("sqlite:///", "sqlite:///FILE"),
        ("sqlite://hunter2/passback.db", "sqlite:///FILE"),
        ("sqlite:///a.db?mode=hunter2", "no options"),
        ("redis:hunter2", "//"),
        ("redis://", "no host"),
        ("redis://:hunter2@", "no host"),
        ("redis://:hunter2@host:many", "port"),
        ("redis://:hunter2@host:99999", "port"),
        ("redis://:hunter2@host/main", "database"),
        ("redis://:hunter2@host/1?db=2", "twice"),
        ("redis://:hunter2@host,other", "redis+sentinel://"),
        ("redis://:hunter2@host?ttl=3", "unknown option: ttl"),
        ("redis://:hun/ter2@host", "percent-encoded"),
        ("redis://:hun?ter2@host", "percent-encoded"),
        ("redis://:hun#ter2@host", "percent-encoded"),
        ("redis://:hunter2@[host", "cannot be read"),
        ("redis://:hunter2@host?ssl_ca_certs=/ca.pem", "rediss://"),
        ("redis+sentinel://:hunter2@one,two", "service"),
        ("redis+cluster://:hunter2@one/3", "database 0"),
    ],
)
def test_a_wrong_url_is_refused_with_a_reason_and_without_its_secrets(
    url: str, reason: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        open_store(url)

    assert reason in refused.value.message
    assert "hunter2" not in refused.value.message
    assert "ter2" not in refused.value.message


@pytest.mark.parametrize(
    "options",
    [
        {"prefix": "{x}"},
        {"prefix": ""},
        {"prefix": "a b"},
        {"ttl": 0},
        {"log_ttl": -1},
        {"max_connections": 0},
        {"timeout": 0},
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, float | str | int]) -> None:
    with pytest.raises(ConfigurationError):
        StoreOptions(**options)  # type: ignore[arg-type]
