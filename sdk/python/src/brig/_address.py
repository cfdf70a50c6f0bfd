"""Where a key may be sent."""

from __future__ import annotations

import ipaddress
import os

import httpx

from ._errors import InvalidArgumentError


def admitted(insecure_http: bool) -> bool:
    """Report whether plain HTTP to another machine is admitted, by the caller or by the environment."""
    return insecure_http or os.environ.get("BRIG_INSECURE_HTTP", "").lower() in ("1", "t", "true")


def check(field: str, url: str, insecure_http: bool) -> None:
    """Refuse plain HTTP to another machine: whoever is on the way reads the key."""
    at = _parse(field, url)
    if at.scheme == "http" and not _loopback(at.host) and not admitted(insecure_http):
        raise InvalidArgumentError(
            f"plain HTTP to {at.host} shows the key to whoever is on the way",
            field=field,
            hint="use https, or admit it with insecure_http=True or BRIG_INSECURE_HTTP=1",
        )


def by_proxy(*urls: str) -> bool:
    """Report whether the environment's proxies may be asked: not for plain HTTP on this machine, which httpx sends there, too."""
    return not any((at := _parse("url", u)).scheme == "http" and _loopback(at.host) for u in urls if u)


def _parse(field: str, url: str) -> httpx.URL:
    try:
        at = httpx.URL(url)
    except httpx.InvalidURL as e:
        raise InvalidArgumentError("it is not the URL of a server", field=field, hint="write it as http://127.0.0.1:2744") from e
    return at


def _loopback(host: str) -> bool:
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    mapped = getattr(ip, "ipv4_mapped", None)
    return bool((mapped or ip).is_loopback)
