"""What a client keeps for us: under which keys it is sealed, and that nothing but the very same opens it again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpvisor.daemon.gateway.questions.keys import KEPT, KEYS_FILE, RENEW_SECONDS, Key, read_or_mint
from mcpvisor.daemon.gateway.questions.sealing import Seals, binding
from mcpvisor.daemon.gateway.questions.states import MAX_CONTENT, Parked, Passed, States, Visit
from mcpvisor.supervisor.errors import Outcome, RequestFailed

OLD, NEW, FOREIGN = (Key(bytes([n]) * 4, bytes([n]) * 32, n) for n in (1, 2, 3))
SEALS = Seals([NEW])
BOUND = binding("token:default", None, "files", "tools/call", params={"name": "read", "arguments": {"a": 1}})

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


class TestSeals:
    @given(st.binary(max_size=2000), st.binary(max_size=100))
    def test_what_was_sealed_is_opened(self, content: bytes, bound: bytes) -> None:
        """Whatever was sealed is opened by who names the same, and no two seals are alike."""
        text = SEALS.seal(content, bound)

        assert SEALS.open(text, bound) == content
        assert SEALS.seal(content, bound) != text
        assert text.isascii()
        assert "=" not in text

    def test_every_character_counts(self) -> None:
        """A text in which any one character is another, or missing, or added, is opened by nobody."""
        text = SEALS.seal(b"a content of some length", BOUND)
        other = {"A": "B"}
        changed = [text[:i] + other.get(text[i], "A") + text[i + 1 :] for i in range(len(text))]
        flipped = [text[:i] + chr(ord(text[i]) ^ 1) + text[i + 1 :] for i in range(len(text))]
        cut = [text[:i] for i in range(len(text))]
        shifted = [text[i:] for i in range(1, len(text))]
        grown = [text + more for more in ("A", "=", "-TAMPERED", "\n", " ", "é")]

        assert [SEALS.open(one, BOUND) for one in [*changed, *flipped, *cut, *shifted, *grown]] == [None] * (
            4 * len(text) - 1 + len(grown)
        )

    @given(st.text(max_size=300))
    def test_no_other_text_is_opened(self, text: str) -> None:
        """A text that was not sealed is opened by nobody, and harms nobody."""
        assert SEALS.open(text, BOUND) is None

    @given(st.lists(st.none() | st.text(max_size=12), min_size=2, max_size=4), json_values, json_values)
    def test_what_it_is_bound_to(self, parts: list[str | None], params: Any, others: Any) -> None:
        """Parts in another place and params of another value are another binding; the order of params is none."""
        bound = binding(*parts, params=params)
        text = SEALS.seal(b"x", bound)
        swapped = [*parts[1:], parts[0]]

        assert SEALS.open(text, binding(*parts, params=_reversed(params))) == b"x"
        assert (SEALS.open(text, binding(*swapped, params=params)) is None) is (swapped != parts)
        assert (SEALS.open(text, binding(*parts, params=others)) is None) is (_kinds(params) != _kinds(others))

    def test_keys(self) -> None:
        """What the key before has sealed is opened; what another key has sealed under either's id is not."""
        text = Seals([OLD]).seal(b"x", BOUND)
        forged = Seals([Key(NEW.id, FOREIGN.secret, 0)]).seal(b"x", BOUND)

        assert Seals([NEW, OLD]).open(text, BOUND) == b"x"
        assert Seals([NEW]).open(text, BOUND) is None
        assert Seals([NEW]).open(forged, BOUND) is None
        assert Seals([NEW, OLD]).seal(b"x", BOUND)[:5] == Seals([NEW]).seal(b"x", BOUND)[:5]

    def test_nothing_is_loaded_before_it_is_needed(self) -> None:
        """The ciphers are no part of the start: importing this does not load them."""
        code = "import sys; import mcpvisor.daemon.gateway.questions.sealing; print('cryptography' in sys.modules)"

        assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def _reversed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _reversed(value[key]) for key in reversed(value)}
    return [_reversed(one) for one in value] if isinstance(value, list) else value


def _kinds(value: Any) -> Any:
    """A value in which true is not 1."""
    if isinstance(value, dict):
        return {key: _kinds(one) for key, one in value.items()}
    return [_kinds(one) for one in value] if isinstance(value, list) else (type(value), value)


class TestKeys:
    def test_minted_once(self, tmp_path: Path) -> None:
        """The first start makes a key that only the daemon's user can read; later ones have the same."""
        first = read_or_mint(tmp_path, lambda: 1000.0)
        second = read_or_mint(tmp_path, lambda: 1000.0 + RENEW_SECONDS - 1)

        assert first == second
        assert len(first) == 1
        assert (tmp_path / KEYS_FILE).stat().st_mode & 0o777 == 0o600
        assert first[0].secret.hex() not in repr(first)

    def test_a_clock_that_was_ahead(self, tmp_path: Path) -> None:
        """A key that was minted in a far future is not kept until then: another one seals, and it still opens."""
        ahead = read_or_mint(tmp_path, lambda: 1e10)
        now = read_or_mint(tmp_path, lambda: 1000.0)

        assert [1000, 10**10] == [key.minted_at for key in now]
        assert ahead[0] == now[1]

    def test_renewed_in_time(self, tmp_path: Path) -> None:
        """An old key is followed by another one, and opens for one more time what it has sealed."""
        starts = [read_or_mint(tmp_path, lambda n=n: n * RENEW_SECONDS) for n in range(3)]

        assert [len(keys) for keys in starts] == [1, KEPT, KEPT]
        assert starts[1][1] == starts[0][0]
        assert starts[2][1] == starts[1][0]
        assert starts[2][0] not in starts[1]

    @pytest.mark.parametrize("text", ["", "nonsense\n", "01020304 abcd 5\n", "\x00" * 5000])
    def test_a_file_that_is_none_of_ours(self, tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
        """What holds no keys is replaced, and that is said."""
        (tmp_path / KEYS_FILE).write_text(text)
        (tmp_path / KEYS_FILE).chmod(0o600)
        keys = read_or_mint(tmp_path)

        assert read_or_mint(tmp_path) == keys
        assert "does not hold keys" in caplog.text

    def test_a_file_that_others_know(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """Keys that others may have read are used no more."""
        before = read_or_mint(tmp_path)
        (tmp_path / KEYS_FILE).chmod(0o640)
        after = read_or_mint(tmp_path)

        assert after[0] != before[0]
        assert len(after) == 1
        assert "others may know" in caplog.text

    def test_a_link_is_not_followed(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """What stands in place of the file is replaced, and what it points to stays."""
        (tmp_path / "elsewhere").write_text("untouched")
        (tmp_path / KEYS_FILE).symlink_to("elsewhere")
        keys = read_or_mint(tmp_path)

        assert (tmp_path / "elsewhere").read_text() == "untouched"
        assert read_or_mint(tmp_path) == keys
        assert "new keys are made" in caplog.text

    def test_no_place_to_keep_them(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """Where nothing can be written a key lasts as long as the daemon, and that is said."""
        keys = read_or_mint(tmp_path / "missing")

        assert len(keys) == 1
        assert "will be lost with the daemon" in caplog.text

    def test_nothing_is_left_behind(self, tmp_path: Path) -> None:
        """A draft of a start that was cut is in nobody's way."""
        (tmp_path / f"{KEYS_FILE}.new").write_text("half")
        read_or_mint(tmp_path)

        assert os.listdir(tmp_path) == [KEYS_FILE]


class TestStates:
    now = 1000.0

    def states(self, seconds: float = 60.0) -> States:
        return States(SEALS, seconds, lambda: self.now)

    @pytest.mark.parametrize(
        "to",
        [
            Parked("0" * 32),
            Passed("theirs", {"q": {"method": "roots/list", "params": {}}}, {"other": {"action": "decline"}}, {"q": "id"}, 5.0),
            Passed(None, {}, {}, {}, 0.0),
            Visit({"page-1": {"method": "elicitation/create", "params": {"url": "https://x"}}}),
        ],
        ids=lambda to: type(to).__name__,
    )
    def test_what_is_written_is_read(self, to: Any) -> None:
        """Each kind of continuation is what it was, also in the daemon's next run."""
        assert self.states().read(self.states().write(to, BOUND), BOUND) == to

    def test_one_refusal_for_all(self) -> None:
        """A state that is too old, foreign, changed, too long or never was is refused by the very same words."""
        states = self.states()
        good = states.write(Parked("0" * 32), BOUND)
        old = self.states(seconds=-1.0).write(Parked("0" * 32), BOUND)
        other = binding("uid:1000", None, "files", "tools/call", params={"name": "read", "arguments": {"a": 1}})
        refusals: list[tuple[Any, ...]] = []
        for text, bound in [
            (old, BOUND),
            (good, other),
            (good[:-1], BOUND),
            ("x" * 10**6, BOUND),
            ("", BOUND),
            ("never", BOUND),
        ]:
            with pytest.raises(RequestFailed) as refused:
                states.read(text, bound)
            failure = refused.value
            refusals.append((failure.outcome, failure.cause, failure.code, failure.message, failure.data))

        assert refusals == [refusals[0]] * 6
        assert refusals[0][:3] == (Outcome.REJECTED, "unknown_state", -32602)

    def test_a_server_that_says_too_much(self) -> None:
        """What a server wants kept is bounded: its call fails, and says why."""
        with pytest.raises(RequestFailed, match="over the 65536 bytes") as failed:
            self.states().write(Passed("x" * MAX_CONTENT, {}, {}, {}, 0.0), BOUND)

        assert failed.value.cause == "input_required"
