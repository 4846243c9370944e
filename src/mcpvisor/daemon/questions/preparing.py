"""Owns what a question must be to be put to anybody, and an answer to reach the server: pure, and bounded in time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mcpvisor.daemon.questions.contract import ACTIONS, Action, JsonObject, Mode, Prepared, Unaskable, Verdict
from mcpvisor.daemon.questions.form import read_form
from mcpvisor.daemon.questions.misunderstanding import NotUnderstood
from mcpvisor.daemon.questions.urls import UnsafeUrl, check_url
from mcpvisor.daemon.questions.wording import is_clean, shown, under_name
from mcpvisor.supervisor.questions import ELICITATION, QUESTION_METHODS, Question
from mcpvisor.supervisor.secret_looks import looks_secret
from mcpvisor.supervisor.secret_names import names_secret

_MOST_ID: Final = 256
_META: Final = ("traceparent", "tracestate")
"""The only `_meta` of a server that reaches whoever is asked: it identifies a request and nothing else."""
_OF_TASKS: Final = "task"
"""Would make the answer a task of the one who is asked; tasks do not cross."""


def prepare(question: Question) -> Prepared:
    """The question, fit to be put to somebody. Raises Unaskable.

    Of an elicitation only what the protocol knows is kept, under the name of its server. Sampling and roots are for programs,
    and go on as they are but for `_meta`.
    """
    if question.method not in QUESTION_METHODS:
        raise Unaskable(f"{shown(question.method, 80)} is no question of the protocol")
    if question.method != ELICITATION:
        params = {key: value for key, value in question.params.items() if key not in {"_meta", _OF_TASKS}}
        return Prepared(question=question, params=params | _meta_of(question.params), mode=None)
    mode = mode_of(question)
    if mode is None:
        raise Unaskable("its mode is neither form nor url")
    if not isinstance(question.params.get("message"), str):
        raise Unaskable("it has no message")
    return _form(question) if mode == "form" else _url(question)


def mode_of(question: Question) -> Mode | None:
    """The mode of an elicitation, which is `form` where none is named; None for one that the protocol does not know."""
    mode = question.params.get("mode", "form")
    return mode if mode in ("form", "url") else None


def judge(prepared: Prepared, answer: Any) -> Verdict:
    """What the server gets for an answer of whoever was asked: what does not fit is a decline, and `why` says what it was."""
    if not isinstance(answer, Mapping):
        return declined("the answer is no object") if prepared.mode else _raw({}, "the answer is no object")
    if prepared.mode is None:
        return _raw({key: value for key, value in answer.items() if key != "_meta"})
    given = answer.get("action")
    action: Action | None = next((one for one in ACTIONS if given == one), None)
    if action is None:
        return declined("the answer is neither accept nor decline nor cancel")
    if action != "accept":
        return Verdict(result={"action": action}, action=action)
    if prepared.form is None:
        return Verdict(result={"action": "accept"}, action="accept")
    content = answer.get("content")
    content = {} if content is None else content
    faults = prepared.form.faults(content)
    if faults:
        return declined(f"the answer does not fit the form: {'; '.join(faults)}")
    return Verdict(result={"action": "accept", "content": content}, action="accept")


def declined(why: str) -> Verdict:
    """A decline, and why it is one."""
    return Verdict(result={"action": "decline"}, action="decline", why=why)


def secrets_of_answer(result: Mapping[str, Any], *, is_clients: bool) -> list[str]:
    """The texts of an answer that nobody else is to see: all that a handler or an operator has said, which is ours to keep.

    Of what a client has said, whose own words may come back to it, those that are secret by their name or their look.
    """
    content = result.get("content")
    if not isinstance(content, Mapping):
        return []
    texts = [(name, text) for name, given in content.items() for text in (given if isinstance(given, list) else [given])]
    return [
        text
        for name, text in texts
        if isinstance(text, str) and not (is_clients and not names_secret(name) and not looks_secret(text))
    ]


def _raw(result: JsonObject, why: str = "") -> Verdict:
    return Verdict(result=result, action=None, why=why)


def _form(question: Question) -> Prepared:
    try:
        form = read_form(question.params.get("requestedSchema"))
    except NotUnderstood as error:
        raise Unaskable(f"its form is not understood: {error}") from None
    message = under_name(question.server, question.params["message"])
    # Older clients know no modes, and take every elicitation for a form.
    mode = {"mode": "form"} if "mode" in question.params else {}
    params = {**mode, "message": message, "requestedSchema": form.schema(), **_meta_of(question.params)}
    return Prepared(question=question, params=params, mode="form", message=message, form=form)


def _url(question: Question) -> Prepared:
    url, identity = question.params.get("url"), question.params.get("elicitationId")
    try:
        warning = check_url(url)
    except UnsafeUrl as error:
        raise Unaskable(str(error)) from None
    if identity is not None and not (isinstance(identity, str) and len(identity) <= _MOST_ID and is_clean(identity)):
        raise Unaskable("its elicitationId cannot be shown as it is")
    message = under_name(question.server, question.params["message"])
    if warning:
        # Before the server's own words, which could talk it away.
        message = under_name(question.server, f"({warning}) {question.params['message']}")
    params = {"mode": "url", "message": message, "url": url, **_meta_of(question.params)}
    params |= {} if identity is None else {"elicitationId": identity}
    return Prepared(question=question, params=params, mode="url", message=message, url=url)


def _meta_of(params: Mapping[str, Any]) -> JsonObject:
    """What of a question's `_meta` may cross."""
    meta = params.get("_meta")
    kept = {key: meta[key] for key in _META if key in meta} if isinstance(meta, Mapping) else {}
    return {"_meta": kept} if kept else {}
