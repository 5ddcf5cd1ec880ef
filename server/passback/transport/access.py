"""Who may talk to the server: the settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from passback.core.messages import OwnerId

ANONYMOUS = OwnerId("anonymous")


@dataclass(frozen=True, slots=True)
class Access:
    """Who may talk to the server.

    Args:
        hosts: names that a `Host` header may have beside loopback, without port, lower case.
        origins: origins of other sites whose pages may call us, exactly as browsers send them.
        keys: bearer keys and whose they are; none: everyone is the owner `anonymous`.
        loopback_only: the server is bound to a loopback address; otherwise `Host` may be any IP address.
    """

    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    keys: Mapping[str, OwnerId] = field(default_factory=dict[str, OwnerId])
    loopback_only: bool = True
