"""Owns how a program answers a question: JSON on its stdin, and what it prints."""

from __future__ import annotations

from typing import Final

from mcpvisor.daemon.handlers.answers import read_answer
from mcpvisor.daemon.handlers.contract import DeliveryFailed, HandlerAnswer, HandlerQuestion
from mcpvisor.daemon.handlers.exec_handler import ExecHandler
from mcpvisor.supervisor.transports.codec import encode

_WHO: Final = "the program"


class AnsweringExec(ExecHandler):
    """Besides taking events, gives each question to a run of the program; its stdout is the answer.

    What the server says is on stdin alone; the environment has what mcpvisor knows by itself.
    """

    async def answer(self, question: HandlerQuestion) -> HandlerAnswer:
        """See `QuestionHandler`: exit code 0, and one JSON object on stdout."""
        variables = {
            "MCPVISOR_QUESTION_ID": question.id,
            "MCPVISOR_QUESTION_SERVER": question.server,
            "MCPVISOR_QUESTION_MODE": question.mode,
        }
        try:
            given = encode(question.as_json()) + b"\n"
        except ValueError as error:
            raise DeliveryFailed(f"the question {error}", is_final=True) from error
        finished = await self._programs.run(given, variables)
        return read_answer(finished.output, _WHO)
