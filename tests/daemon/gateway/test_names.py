"""Public names are stable, bounded, and cannot be squatted."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from mcpvisor.daemon.gateway.names import MAX_OWN_LENGTH, own_name, public_name

servers = st.from_regex(r"[A-Za-z0-9-]{1,8}(_[A-Za-z0-9-]{1,7}){0,2}", fullmatch=True)
tools = st.text(max_size=150) | st.from_regex(r"[A-Za-z0-9_.-]{1,80}", fullmatch=True)


def test_a_plain_name_is_joined_to_its_server():
    """A tool of an allowed name keeps it, behind the server's name and two underscores."""
    assert public_name("github", "list_issues") == "github__list_issues"


def test_a_changed_name_carries_a_hash():
    """Other characters become underscores, and a hash keeps two such names apart."""
    dotted, slashed = public_name("a", "x.y"), public_name("a", "x/y")

    assert re.fullmatch(r"a__x_y_[a-z2-7]{10}", dotted)
    assert re.fullmatch(r"a__x_y_[a-z2-7]{10}", slashed)
    assert dotted != slashed


def test_known_hash():
    """The rule is a promise: clients keep public names in their own configuration."""
    assert public_name("srv", "do it!") == "srv__do_it__lyjcli4mro"


@given(servers, tools)
def test_shape(server: str, tool: str):
    """Every public name is of the charset and length that the strictest clients take."""
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", public_name(server, tool))


@given(servers, tools)
def test_the_server_part_is_never_cut(server: str, tool: str):
    """What stands before the first two underscores is the server, so that no server can take another's name."""
    assert public_name(server, tool).partition("__")[0] == server


@given(servers, servers, tools, tools)
def test_injective(one: str, other: str, tool: str, another: str):
    """Two tools of one public name are the same tool."""
    if public_name(one, tool) == public_name(other, another):
        assert one == other
        assert tool == another or _looks_hashed(tool) or _looks_hashed(another)


def _looks_hashed(tool: str) -> bool:
    """A server may give a tool the very name that another of its own tools is shortened to; it harms only itself."""
    return re.search(r"_[a-z2-7]{10}$", tool) is not None


@given(servers, tools)
def test_alone(server: str, tool: str):
    """A server shown alone keeps its own names wherever the protocol allows them."""
    name = own_name(server, tool)

    assert re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", name)
    assert (name == tool) is (re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", tool) is not None)
    assert len(name) <= MAX_OWN_LENGTH
