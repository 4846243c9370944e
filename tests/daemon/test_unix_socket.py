from __future__ import annotations

import os
import socket
import stat

import pytest

from mcpvisor.daemon.unix_socket import ListenFailed, SocketInUse, bind_unix, remove, socket_path

KEY = "control.listen"


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


def test_the_socket_and_its_folder_are_private(tmp_path):
    """Without a group the folder is made 0700 and the socket 0600, whatever the umask."""
    path = tmp_path / "run" / "control.sock"
    before = os.umask(0)
    try:
        bind_unix(path, None, KEY).close()
    finally:
        os.umask(before)

    assert (0o700, 0o600) == (mode(path.parent), mode(path))


def test_the_group_may_use_the_socket(tmp_path):
    """With a group the folder is 0750 and the socket 0660, and both belong to it."""
    gid = os.getgid()
    path = tmp_path / "run" / "control.sock"
    bind_unix(path, gid, KEY).close()

    assert (0o750, 0o660) == (mode(path.parent), mode(path))
    assert (gid, gid) == (path.parent.stat().st_gid, path.stat().st_gid)


def test_a_stale_socket_is_replaced(tmp_path):
    """A socket that a daemon left behind is no obstacle."""
    path = tmp_path / "control.sock"
    bind_unix(path, None, KEY).close()

    with bind_unix(path, None, KEY) as listening, socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        assert str(path) == listening.getsockname()


def test_a_socket_that_answers_is_left_alone(tmp_path):
    """A second daemon is refused by name of the socket, and the first goes on listening."""
    path = tmp_path / "control.sock"
    with bind_unix(path, None, KEY):
        with pytest.raises(SocketInUse, match=str(path)):
            bind_unix(path, None, KEY)
        assert path.exists()


def test_a_file_in_its_place_is_no_socket_to_remove(tmp_path):
    """What is no socket is never removed."""
    path = tmp_path / "control.sock"
    path.write_text("precious")

    with pytest.raises(ListenFailed, match="is no socket"):
        bind_unix(path, None, KEY)
    assert "precious" == path.read_text()


def test_a_folder_that_everybody_can_write_is_refused(tmp_path):
    """A folder in which anybody could put another socket is refused, with the remedy."""
    tmp_path.chmod(0o777)

    with pytest.raises(ListenFailed, match="chmod o-w"):
        bind_unix(tmp_path / "control.sock", None, KEY)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder of another user")
def test_a_folder_of_another_user_is_refused(tmp_path):
    """A folder of somebody else is refused, also behind a link of our own."""
    theirs, link = tmp_path / "theirs", tmp_path / "link"
    theirs.mkdir()
    link.symlink_to(theirs)
    os.chown(theirs, 12345, 12345)

    for folder in (theirs, link):
        with pytest.raises(ListenFailed, match="uid 12345"):
            bind_unix(folder / "control.sock", None, KEY)


@pytest.mark.parametrize(
    ("address", "word"),
    [
        ("127.0.0.1:7000", "unix:/PATH"),
        ("unix:relative", "unix:/PATH"),
        (f"unix:/{'x' * 200}", "107 bytes"),
        ("/run/x", "unix:/PATH"),
    ],
)
def test_an_address_that_is_not_served(address, word):
    """An address that cannot be listened on is refused with the key and the remedy."""
    with pytest.raises(ListenFailed, match=r"control\.listen") as refused:
        socket_path(address, KEY)
    assert word in str(refused.value)


def test_only_our_own_socket_is_removed(tmp_path):
    """A socket that another daemon has put in our socket's place stays."""
    path = tmp_path / "control.sock"
    with bind_unix(path, None, KEY):
        remove(path, path.lstat().st_ino + 1)
        assert path.exists()
        remove(path, path.lstat().st_ino)
        assert not path.exists()
        remove(path, 1)
