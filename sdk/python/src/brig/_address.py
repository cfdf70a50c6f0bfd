"""Checks of the addresses to which the client sends a key."""

from __future__ import annotations

import ipaddress
import os

import httpx

from ._errors import InvalidArgumentError


def insecure_permitted(insecure_http: bool) -> bool:
    """Report whether the caller or the environment permits plain HTTP to another machine."""
    return insecure_http or os.environ.get("BRIG_INSECURE_HTTP", "").lower() in ("1", "t", "true")


def check(field: str, url: str, insecure_http: bool) -> None:
    """Refuse plain HTTP to another machine: others on the network could read the key."""
    at = _parse(field, url)
    if at.scheme == "http" and not _loopback(at.host) and not insecure_permitted(insecure_http):
        raise InvalidArgumentError(
            f"plain HTTP to {at.host} would expose the key on the network",
            field=field,
            hint="use https, or permit it with insecure_http=True or BRIG_INSECURE_HTTP=1",
        )


def by_proxy(*urls: str) -> bool:
    """Report whether to use the environment's proxies. Plain HTTP to this machine must not pass one, as it does in httpx."""
    return not any((at := _parse("url", u)).scheme == "http" and _loopback(at.host) for u in urls if u)


def same(url: str, announced: str) -> bool:
    """Report whether a URL without a path and a URL that a server has announced have the same address."""
    try:
        a, b = httpx.URL(url), httpx.URL(announced)
        at = ipaddress.ip_address(b.host)
    except (httpx.InvalidURL, ValueError):
        return False
    if a.userinfo or a.scheme != b.scheme or _port(a) != _port(b) or a.path not in ("", "/"):
        return False
    if a.host == "localhost":
        return at.is_loopback
    try:
        asked = ipaddress.ip_address(a.host)
    except ValueError:
        return False
    return (getattr(asked, "ipv4_mapped", None) or asked) == (getattr(at, "ipv4_mapped", None) or at)


def _port(url: httpx.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def _parse(field: str, url: str) -> httpx.URL:
    try:
        at = httpx.URL(url)
    except httpx.InvalidURL as e:
        raise InvalidArgumentError(
            f"{url!r} is not the URL of a server", field=field, hint="give a URL like http://127.0.0.1:2744"
        ) from e
    return at


def _loopback(host: str) -> bool:
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    mapped = getattr(ip, "ipv4_mapped", None)
    return bool((mapped or ip).is_loopback)
