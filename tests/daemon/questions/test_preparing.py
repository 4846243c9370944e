"""What a question must be to be put to anybody, and what of an answer reaches the server."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.daemon.questions.asking import ACCEPTED, DECLINED, NAME_FORM, question

from mcpvisor.daemon.questions.contract import CanBeAsked, Unaskable
from mcpvisor.daemon.questions.preparing import judge, prepare, secrets_of_answer
from mcpvisor.daemon.questions.urls import UnsafeUrl, check_url
from mcpvisor.daemon.questions.wording import under_name
from mcpvisor.supervisor.questions import ROOTS, SAMPLING

JsonObject = dict[str, Any]


def url_question(url: Any, message: str = "Sign in", **more: Any) -> Any:
    return question({"mode": "url", "message": message, "url": url, **more})


class TestWords:
    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("Who?", "[git] Who?"),
            ("[github] Who?", "[git] (github) Who?"),
            ("ok\n\n[github] Who?", "[git] ok (github) Who?"),
            ("\uff3bgithub\uff3d \u3010github\u3011 \u27e6x\u27e7", "[git] (github) (github) (x)"),
            ("\u202e]buhtig[ \u2066x\u2069", "[git] )buhtig( x"),
            ("a\u200bb\u2060c\ufeffd\u00ade\u200df\U000e0041g\ufe0fh\u3164i\u2800j", "[git] abcdefghij"),
            ("\x1b[2J\x1b]0;title\x07hi\x00", "[git] hi"),
            ("a\u00a0\u2003\u3000\t  b", "[git] a b"),
            ("a" + "\u0301" * 50, "[git] a\u0301\u0301\u0301"),
            ("", "[git] asks without a word"),
            ("\u200b", "[git] asks without a word"),
        ],
    )
    def test_a_message_stands_under_its_servers_name_and_no_other(self, text: str, shown: str) -> None:
        """The name comes first, in the brackets that only we write; nothing is hidden, and nothing breaks the line."""
        assert shown == under_name("git", text)

    def test_a_long_message_is_cut_behind_the_name(self) -> None:
        """No message pushes the name out of sight."""
        shown = under_name("git", "x" * 100_000)

        assert (4006, True, True) == (len(shown), shown.startswith("[git] xxx"), shown.endswith("\u2026"))

    @given(text=st.text())
    def test_no_text_writes_a_name(self, text: str) -> None:
        """Whatever a server says, there is one pair of brackets, on one line that can be printed."""
        shown = under_name("git", text)

        assert (1, 1) == (shown.count("["), shown.count("]"))
        assert shown.startswith("[git] ")
        assert shown.isprintable()


class TestUrls:
    @pytest.mark.parametrize(
        ("url", "warning"),
        [
            ("https://mcp.example.com/connect?id=1#top", ""),
            ("HTTPS://Example.com:8443/", ""),
            ("http://localhost:3000/cb", ""),
            ("http://app.localhost/", ""),
            ("http://127.0.0.1:1/", ""),
            ("http://[::1]:1/", ""),
            ("https://[2001:db8::1]/", ""),
            (
                "https://xn--80ak6aa92e.com/",
                "beware: the host xn--80ak6aa92e.com stands for \u0430\u0440\u0440\u04cf\u0435.com",
            ),
            (
                "https://\u0430\u0440\u0440\u04cf\u0435.com/",
                "beware: the host is not written in plain letters, it is xn--80ak6aa92e.com",
            ),
            ("https://xn--\x61.com/", "beware: the host xn--a.com stands for \x80.com".replace("\x80", "")),
        ],
    )
    def test_an_address_that_may_be_shown(self, url: str, warning: str) -> None:
        """https, or this machine; a host that is not what it looks like is marked."""
        assert warning == check_url(url)

    @pytest.mark.parametrize(
        "url",
        [
            *(
                None,
                1,
                "",
                "example.com",
                "//example.com/",
                "/x",
                "https:example.com",
                "https:/example.com",
                "https://",
                "https:///x",
            ),
            *("http://example.com/", "http://127.1/", "http://2130706433/", "http://localhost.example.com/", "http://[::2]/"),
            *("javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "ftp://a.example/", "mailto:a@b", "custom://x"),
            *("https://user@a.example/", "https://a.example@b.example/", "https://user:pw@a.example/", "https://@a.example/"),
            *(
                "https://a.example\\@b.example/",
                "https://a.example/\\x",
                "https://a.example/ x",
                " https://a.example/",
                "https://a.example/\n",
            ),
            *(
                "https://a.ex\tample/",
                "https://a\u202e.example/",
                "https://a.example/\u202e",
                "https://a.example/\u00e9",
                "https://a%2eb/",
            ),
            *(
                "https://a..example/",
                "https://a.example:99999/",
                "https://a.example:x/",
                "https://a.example:0/",
                "https://[::1/",
            ),
            *(
                "https://a.example/" + "x" * 2048,
                "https://" + "a" * 300 + "/",
                "https://\u200b.com/",
                "java\nscript:x",
                "https://a.example/\x00",
            ),
        ],
    )
    def test_an_address_that_nobody_is_sent_to(self, url: Any) -> None:
        """Anything else is refused before anybody sees it, with the reason."""
        with pytest.raises(UnsafeUrl, match="URL"):
            check_url(url)

    @given(url=st.text() | st.text("htps:/@[]\\.x%0\u0430-\u202e", max_size=20).map("https://".__add__))
    def test_no_address_breaks_the_check(self, url: str) -> None:
        """Whatever a server calls a URL is refused in words, or is one line of printable letters, as its warning is."""
        try:
            warning = check_url(url)
        except UnsafeUrl:
            return
        assert (True, True) == (url.isprintable(), warning.isprintable())


class TestPreparing:
    def test_a_form_is_what_the_protocol_knows_under_the_servers_name(self) -> None:
        """Unknown params, tasks and progress tokens do not cross; the trace does."""
        meta = {"progressToken": 7, "traceparent": "00-x", "vendor": 1}
        prepared = prepare(question({**NAME_FORM, "task": {"ttl": 1}, "x": 1, "_meta": meta}))

        assert {
            "message": "[git] Who?",
            "requestedSchema": NAME_FORM["requestedSchema"],
            "_meta": {"traceparent": "00-x"},
        } == prepared.params
        assert ("form", "[git] Who?", ("name",)) == (prepared.mode, prepared.message, prepared.properties)

    def test_the_mode_is_named_where_the_server_names_it(self) -> None:
        """A question without a mode is one for a form, and older clients get it as it came."""
        assert "form" == prepare(question({**NAME_FORM, "mode": "form"})).params["mode"]
        assert "mode" not in prepare(question()).params

    def test_an_address_is_passed_on_whole_with_its_warning_first(self) -> None:
        """The URL is the server's own to the letter; what is wrong with it is said before the server's words."""
        prepared = prepare(url_question("https://xn--80ak6aa92e.com/x", "it is safe", elicitationId="e-1"))
        warning = "(beware: the host xn--80ak6aa92e.com stands for \u0430\u0440\u0440\u04cf\u0435.com)"

        assert {
            "mode": "url",
            "message": f"[git] {warning} it is safe",
            "url": "https://xn--80ak6aa92e.com/x",
            "elicitationId": "e-1",
        } == prepared.params

    def test_what_is_for_programs_goes_on_as_it_is(self) -> None:
        """Sampling and roots lose their `_meta` and their task, and nothing else."""
        params = {"messages": [{"x": [1, "\u202e"]}], "vendor": True}
        prepared = prepare(question({**params, "_meta": {"progressToken": 1}, "task": {}}, method=SAMPLING))

        assert (params, None) == (prepared.params, prepared.mode)

    @pytest.mark.parametrize(
        ("params", "why"),
        [
            ({**NAME_FORM, "mode": "voice"}, "its mode is neither form nor url"),
            ({**NAME_FORM, "mode": ["form"]}, "its mode is neither form nor url"),
            ({"requestedSchema": NAME_FORM["requestedSchema"]}, "it has no message"),
            ({**NAME_FORM, "message": 1}, "it has no message"),
            ({"message": "x"}, "its form is not understood: the schema must be one of an object"),
            ({"mode": "url", "message": "x"}, "it has no URL"),
            (
                {"mode": "url", "message": "x", "url": "http://a.example/"},
                "its URL is not https, and does not lead to this machine",
            ),
            (
                {"mode": "url", "message": "x", "url": "https://a.example/", "elicitationId": 1},
                "its elicitationId cannot be shown as it is",
            ),
        ],
    )
    def test_what_cannot_be_asked(self, params: JsonObject, why: str) -> None:
        """An unknown kind, words that are none, a form or an address that is not fit: nobody is asked."""
        with pytest.raises(Unaskable) as raised:
            prepare(question(params))

        assert why == str(raised.value)

    def test_what_is_no_question(self) -> None:
        """A method that asks nothing of anybody."""
        with pytest.raises(Unaskable, match="tools/call is no question of the protocol"):
            prepare(question({}, method="tools/call"))


class TestJudging:
    @pytest.mark.parametrize(
        ("answer", "result", "why"),
        [
            (ACCEPTED, ACCEPTED, ""),
            ({**ACCEPTED, "_meta": {"x": 1}, "y": 2}, ACCEPTED, ""),
            ({"action": "decline", "content": {"name": "x"}}, DECLINED, ""),
            ({"action": "cancel"}, {"action": "cancel"}, ""),
            ({"action": "accept"}, DECLINED, "the answer does not fit the form: name: is missing"),
            ({"action": "accept", "content": {"name": 1}}, DECLINED, "the answer does not fit the form: name: must be a text"),
            (
                {"action": "accept", "content": {"name": "x", "pw": "s3cret"}},
                DECLINED,
                "the answer does not fit the form: pw: was not asked for",
            ),
            (
                {"action": "accept", "content": ["x"]},
                DECLINED,
                "the answer does not fit the form: the content must be an object",
            ),
            ({"action": "ACCEPT"}, DECLINED, "the answer is neither accept nor decline nor cancel"),
            ({"action": ["accept"]}, DECLINED, "the answer is neither accept nor decline nor cancel"),
            ({}, DECLINED, "the answer is neither accept nor decline nor cancel"),
            (None, DECLINED, "the answer is no object"),
        ],
    )
    def test_only_what_fits_reaches_the_server(self, answer: Any, result: JsonObject, why: str) -> None:
        """What does not fit the form is a decline, and the reason names the fields and no value."""
        verdict = judge(prepare(question()), answer)

        assert (result, result["action"], why) == (verdict.result, verdict.action, why)

    def test_consent_to_an_address_has_no_content(self) -> None:
        """Nothing that a client puts beside it reaches the server."""
        assert {"action": "accept"} == judge(prepare(url_question("https://a.example/")), ACCEPTED).result

    def test_a_form_that_asks_for_nothing_is_a_mere_confirmation(self) -> None:
        """An accepted answer without a content has an empty one."""
        empty = prepare(question({"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}))

        assert {"action": "accept", "content": {}} == judge(empty, {"action": "accept"}).result

    def test_the_answer_of_a_program_is_its_own(self) -> None:
        """Sampling and roots are passed back as they are, but for `_meta`."""
        prepared = prepare(question({}, method=ROOTS, principal=None))

        assert {"roots": [], "x": 1} == judge(prepared, {"roots": [], "x": 1, "_meta": {}}).result
        assert "the answer is no object" == judge(prepared, []).why


@pytest.mark.parametrize(
    ("capabilities", "can"),
    [
        (None, CanBeAsked()),
        ({}, CanBeAsked()),
        ({"elicitation": {}}, CanBeAsked(form=True)),
        ({"elicitation": {"form": {}}}, CanBeAsked(form=True)),
        ({"elicitation": {"url": {}}}, CanBeAsked(url=True)),
        ({"elicitation": {"form": {}, "url": {}}}, CanBeAsked(form=True, url=True)),
        ({"elicitation": {"form": None, "url": None}}, CanBeAsked(form=True)),
        ({"elicitation": None, "sampling": {}, "roots": None}, CanBeAsked(sampling=True)),
        ({"roots": {"listChanged": True}}, CanBeAsked(roots=True)),
    ],
)
def test_what_a_client_has_declared(capabilities: JsonObject | None, can: CanBeAsked) -> None:
    """An empty `elicitation` means forms alone, in both eras."""
    assert can == CanBeAsked.of(capabilities)


def test_what_of_an_answer_is_not_to_be_heard_again():
    """All that a handler or an operator has said; of a client's words those that are secret by their name or their look."""
    key = "ghp_abcdefghijklmnopqrstuvwx"
    given = {"branch": "main-line", "password": "hunter22", "size": 3, "sure": True, "labels": ["wip-now", key]}
    result = {"action": "accept", "content": given}

    assert ["main-line", "hunter22", "wip-now", key] == secrets_of_answer(result, is_clients=False)
    assert ["hunter22", key] == secrets_of_answer(result, is_clients=True)
    assert [] == secrets_of_answer({"action": "decline"}, is_clients=False)
