"""Answers to what runs owe: by the editor, which executes its tools, and by its user."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from passback.core.errors import InvalidRequest
from passback.core.messages import UNNAMED, Answer, ApprovalMessage, Owed, ToolMessage
from passback.streams.jsonrpc import Peer
from passback.wire.acp.asking import (
    Decision,
    ask_permission,
    ask_user,
    is_choice,
    question_text,
)
from passback.wire.acp.client_tools import ClientTools, Refusal, Result
from passback.wire.acp.kept_settings import KeptSettings
from passback.wire.acp.modes import Lasting, mode_of, standing_decision
from passback.wire.acp.posted import ClientAbilities, text_block
from passback.wire.acp.updates import Description, Update, Updates, text_content

_NOT_ALLOWED: Final = "The user did not allow this call."
_MAYBE_DONE: Final = "This call was interrupted before: it may have been carried out already."
_ALONE: Final = (
    "Not asked: here the user can be asked in text only. Ask one thing at a time, without other "
    "calls beside it."
)


@dataclass(slots=True)
class Editor:
    """The editor, as its sessions know it.

    Attributes:
        peer: to ask it and to tell it something.
        flush: waits until it has taken what was sent.
        abilities: what it can do.
    """

    peer: Peer
    flush: Callable[[], Awaitable[None]]
    abilities: ClientAbilities


class Answering:
    """Answers the calls of one session.

    Args:
        editor: executes its tools, and asks its user.
        session_id: the session.
        tools: of the editor.
        updates: of the session.
        settings: of the session.
    """

    def __init__(
        self,
        editor: Editor,
        session_id: str,
        /,
        *,
        tools: ClientTools,
        updates: Updates,
        settings: KeptSettings,
    ) -> None:
        self._peer = editor.peer
        self._session_id = session_id
        self._by_form = editor.abilities.elicitation.form
        self._tools = tools
        self._updates = updates
        self._settings = settings

    def send(self, updates: Sequence[Update], /) -> None:
        """Send updates to the editor."""
        for update in updates:
            self._peer.notify("session/update", {"sessionId": self._session_id, "update": update})

    def is_answerable(self, owed: Owed, /) -> bool:
        """Return False for a call of a tool that is none of the editor's: another client's."""
        return owed.kind != "tool_result" or self._tools.has(owed.name)

    def asks_in_text(self, owed: Sequence[Owed], /) -> bool:
        """Return whether nothing is owed but questions that can only be asked in text."""
        if self._by_form or len(owed) != 1 or owed[0].kind != "question":
            return False
        return not is_choice(owed[0])

    def ask_in_text(self, question: Owed, /) -> None:
        """Ask questions in text. The next prompt brings the answer."""
        block = text_block(question_text(question))
        self.send([{"sessionUpdate": "agent_message_chunk", "content": block}])
        self.send(self._updates.settle(question.id, "Asked.", is_error=False))

    async def answer(self, owed: Owed, /, *, again: bool) -> Answer:
        """Return the answer to a call that was announced.

        Args:
            owed: the call.
            again: it was owed before this process knew it, and may have been carried out.

        Raises:
            PromptCancelled: the prompt is being cancelled.
            ConnectionLost: the editor is gone.
        """
        match owed.kind:
            case "approval":
                return await self._decide(owed)
            case "question":
                answer = await self._ask(owed)
            case _:
                result = await self._execute(owed, again=again)
                answer = ToolMessage(UNNAMED, owed.id, result.content, result.is_error)
        self.send(self._updates.settle(owed.id, answer.content, is_error=answer.is_error))
        return answer

    async def _ask(self, owed: Owed) -> ToolMessage:
        view = self._updates.view(owed.id)
        answer = await ask_user(self._peer, self._session_id, owed, view, by_form=self._by_form)
        return answer or ToolMessage(UNNAMED, owed.id, _ALONE, is_error=True)

    async def _decide(self, owed: Owed) -> ApprovalMessage:
        decision: Decision = "allow_once"
        if mode_of(self._settings.now) != "bypass":
            view = self._updates.view(owed.id)
            view["content"] = [*view.get("content", ()), *text_content(owed.reason)]
            decision = await ask_permission(self._peer, self._session_id, view)
        return ApprovalMessage(
            UNNAMED,
            owed.id,
            decision in {"allow_once", "allow_always"},
            always=decision in {"allow_always", "reject_always"},
        )

    async def _execute(self, owed: Owed, *, again: bool) -> Result:
        try:
            shown = await self._tools.prepare(owed)
            asks = self._tools.changes_something(owed.name)
            if asks and not await self._is_allowed(owed, shown, again=again):
                return Result(_NOT_ALLOWED, is_error=True)
            self.send(self._updates.begin(owed.id))
            return await self._tools.execute(
                owed, lambda content: self.send(self._updates.show(owed.id, content))
            )
        except Refusal as refusal:
            return Result(str(refusal), is_error=True)

    async def _is_allowed(self, owed: Owed, shown: Description | None, *, again: bool) -> bool:
        """Return whether a call of the editor's tools may be made; ask, if nothing else says it."""
        change = self._tools.change_of(owed)
        decision = standing_decision(self._settings.now, change)
        if decision == "deny" or (decision == "allow" and not again):
            return decision == "allow"
        view = self._updates.view(owed.id)
        content = list(shown.content) if shown is not None else []
        if again:
            content = [*text_content(_MAYBE_DONE), *content]
        view["content"] = content
        chosen = await ask_permission(self._peer, self._session_id, view, change.subject)
        lasting: Lasting = "deny" if chosen.startswith("reject") else "allow"
        if chosen.endswith("_always"):
            with suppress(InvalidRequest):  # there is no room for it: it is asked again
                await self._settings.decide(change, lasting)
        return lasting == "allow"
