"""Addresses that try to lead the web tools to forbidden hosts, or are misleading."""

CLOSED = "is not on the public internet"
UNKNOWN = "was not found"
NO_WEB = "begins with http"
LOGIN = "contains a user name or a password"
PORT = "web tools can't use port"
NO_ASCII = "can't be written in ASCII"

NAMES: dict[str, list[str]] = {
    "localhost": ["127.0.0.1"],
    "private.example": ["10.0.0.1"],
    "mixed.example": ["8.8.8.8", "127.0.0.1"],
    "mapped.example": ["::ffff:127.0.0.1"],
    "linked.example": ["fe80::1"],
    "metadata.example": ["169.254.169.254"],
    "empty.example": [],
}
"""What the resolver of the table knows besides numbers."""

HOSTS: dict[str, str] = {
    "this machine": "127.0.0.1",
    "short": "127.1",
    "shorter": "127.0.1",
    "hex": "0x7f000001",
    "hex in parts": "0x7f.0.0.0x1",
    "decimal": "2130706433",
    "octal": "017700000001",
    "octal in parts": "0177.0.0.01",
    "nothing": "0",
    "all": "0.0.0.0",
    "other loopback": "127.8.8.8",
    "private": "10.0.0.1",
    "private of homes": "192.168.0.1",
    "private in between": "172.31.255.255",
    "shared": "100.64.0.1",
    "metadata": "169.254.169.254",
    "metadata in decimal": "2852039166",
    "agent of a cloud": "168.63.129.16",
    "broadcast": "255.255.255.255",
    "multicast": "224.0.0.1",
    "six": "[::1]",
    "six, long": "[0:0:0:0:0:0:0:1]",
    "six, all": "[::]",
    "mapped": "[::ffff:127.0.0.1]",
    "mapped in hex": "[::ffff:7f00:1]",
    "compatible": "[::127.0.0.1]",
    "nat64": "[64:ff9b::7f00:1]",
    "nat64, local": "[64:ff9b:1::7f00:1]",
    "6to4": "[2002:7f00:1::]",
    "teredo": "[2001::1]",
    "link": "[fe80::1]",
    "site": "[fec0::1]",
    "unique local": "[fd00:ec2::254]",
    "capitals": "LOCALHOST",
    "a name of this machine": "localhost",
    "a private name": "private.example",
    "one of its addresses": "mixed.example",
    "a mapped name": "mapped.example",
    "a linked name": "linked.example",
    "a metadata name": "metadata.example",
}
"""By name: hosts that are all closed, also as the target of a redirect."""

ADDRESSES: dict[str, tuple[str, str]] = {
    # Schemes
    "a file": ("file:///etc/passwd", NO_WEB),
    "ftp": ("ftp://127.0.0.1/", NO_WEB),
    "gopher": ("gopher://127.0.0.1:{port}/_GET", NO_WEB),
    "data": ("data:text/plain,secret", NO_WEB),
    "script": ("javascript:alert(1)", NO_WEB),
    "a socket": ("http+unix://%2Fvar%2Frun%2Fdocker.sock/info", NO_WEB),
    "websocket": ("ws://127.0.0.1:{port}/", NO_WEB),
    "no scheme": ("127.0.0.1:{port}/secret", NO_WEB),
    "two slashes": ("//127.0.0.1:{port}/secret", NO_WEB),
    "capitals": ("HTTP://127.0.0.1:{port}/secret", CLOSED),
    # Who is meant
    "login": ("http://user:pass@127.0.0.1:{port}/secret", LOGIN),
    "login that looks like a host": ("http://a.example@127.0.0.1:{port}/secret", LOGIN),
    "empty login": ("http://@127.0.0.1:{port}/secret", LOGIN),
    "no host": ("http:///secret", NO_WEB),
    "no slashes": ("http:127.0.0.1/secret", NO_WEB),
    "one slash": ("http:/127.0.0.1/secret", NO_WEB),
    "backslashes": ("http:\\\\127.0.0.1:{port}\\secret", NO_WEB),
    "not in the resolver": ("http://nowhere.example:{port}/", UNKNOWN),
    "no address": ("http://empty.example:{port}/", "has no address"),
    # Ports
    "ssh": ("http://8.8.8.8:22/", PORT),
    "postgres": ("http://8.8.8.8:5432/", PORT),
    "port 0": ("http://8.8.8.8:0/", PORT),
}
"""By name: the address, and the words in which it is refused."""
