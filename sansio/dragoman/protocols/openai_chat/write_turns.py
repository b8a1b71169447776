"""An assistant's turn of the history, printed for a Chat Completions upstream.

Strategy: one message holds all that was said and all calls of a turn, so a run of messages is collected first and
printed then. Earlier reasoning goes where the upstream wants it: its own fields as it sent them, other text under
the name that it reads. What it sealed beside its calls goes back onto those calls.
"""

from __future__ import annotations

from collections.abc import Sequence

from dragoman._ir.events import ToolKind
from dragoman._ir.losses import LossCode
from dragoman._ir.request import Message, OpaquePart, Part, Refusal, Text, Thought, ToolCall
from dragoman._wire.json import JSON, JSONObject
from dragoman.protocols.openai_chat.reasoning import Entries, is_wrapped_entry
from dragoman.protocols.openai_chat.tables import (
    CALL_CARRY,
    MESSAGE_CARRY,
    NAME,
    REASONING_FIELDS,
    UNSIGNED_CALL,
)
from dragoman.protocols.openai_chat.write_parts import PLAIN_TEXT, PartWriter, merge

_CUSTOM = ToolKind.CUSTOM  # an Enum's member is slow to look up

# Members of a seal that go back all the same where no member takes reasoning: what is none, and parts of the content.
_CARRIES = {CALL_CARRY, MESSAGE_CARRY, "content"}
# What says of a message only whose it is.
_SPEAKER = {"role", "name"}
# Two names for the same: reasoning as one text.
_PLAIN_FIELDS = {"reasoning_content", "reasoning"}
# Where wrapped seals stood: the path of such a thought names the member that held it.
_WRAPPED = ("/data", "/signature")


def short_turn(run: Sequence[Message]) -> JSONObject | None:
    """The wire message of a foreign assistant's turn of plain texts and then calls, None for any other."""
    texts: list[str] = []
    calls: list[JSONObject] = []
    for message in run:
        if message.name is not None or message.phase is not None:
            return None
        for part in message.parts:
            if type(part) is Text and not calls and part.cache is None and part.citations is None:
                texts.append(part.text)
            elif type(part) is ToolCall and part.cache is None:
                calls.append(_call_body(part))
            else:
                return None
    content = "\n\n".join(texts)
    if calls:
        return {"role": "assistant", "content": content or None, "tool_calls": calls}
    return {"role": "assistant", "content": content} if content else None


def write_turn(run: Sequence[Message], parts: PartWriter, in_loop: bool = False) -> JSONObject | None:
    """The wire message of any turn, None when nothing is left of it. in_loop: the user has not spoken since."""
    turn = _Turn(parts)
    for message in run:
        before: Part | None = None
        for part in message.parts:
            turn.part(part, message)
            if before is not None and not parts.own and _is_cut(before, part):
                turn.rejoin()
            before = part
        parts.envelope(message, turn.body)
    return turn.finish(run[0], in_loop)


class _Turn:
    """Collects one turn. carried: what goes back onto a call, with its id and the number of calls before it.

    said: the reasoning members of its messages, by their paths.
    """

    __slots__ = ("_parts", "body", "calls", "carried", "content", "refusals", "said", "thoughts")

    def __init__(self, parts: PartWriter) -> None:
        self._parts = parts
        self.body: JSONObject = {"role": "assistant"}
        self.content: list[JSONObject] = []
        self.refusals: list[str] = []
        self.calls: list[JSONObject] = []
        self.thoughts: list[Thought] = []
        self.said: dict[str, JSONObject] = {}
        self.carried: list[tuple[Thought, int, str, JSONObject]] = []

    def part(self, part: Part, message: Message) -> None:
        own = self._parts.own
        if isinstance(part, ToolCall):
            self._call(part, message)
        elif isinstance(part, Thought):
            self._thought(part, message)
        elif isinstance(part, Refusal):
            if own and part.path != f"{message.path}/refusal":
                self.content.append(merge({"type": "refusal", "refusal": part.text}, part.extra or {}))
            else:
                self.refusals.append(part.text)
        elif isinstance(part, OpaquePart) and part.kind == "audio" and part.origin == NAME:
            self.body["audio"] = part.native
        else:
            if self.calls and not own and isinstance(part, Text):
                self._parts.ledger.altered(part.path, "text after a tool call is sent before it")
            self._parts.part(part, message, self.content)

    def rejoin(self) -> None:
        """Put the last two texts together."""
        before = self.content.pop(-2)
        self.content[-1]["text"] = before["text"] + self.content[-1]["text"]

    def _call(self, call: ToolCall, message: Message) -> None:
        parts = self._parts
        if parts.exact and call.path.endswith("/function_call"):  # the legacy form
            function = {"name": call.name, "arguments": call.input}
            self.body["function_call"] = merge(function, call.extra or {})
            return
        body = _call_body(call)
        mark = call.cache
        if mark is not None:
            if parts.exact or parts.target.cache_marks == "none":
                parts.mark(mark, message, body)
            elif self.content and self.content[-1].keys() >= PLAIN_TEXT:
                parts.ledger.altered(
                    mark.path, "tool calls take no cache marks here: moved to the text before"
                )
                parts.mark(mark, message, self.content[-1])
            else:
                parts.ledger.dropped(mark.path, "there is no text before the call that could carry the mark")
        self.calls.append(merge(body, call.extra) if parts.own and call.extra else body)

    def _thought(self, thought: Thought, message: Message) -> None:
        self.thoughts.append(thought)
        # One that a pass has put there stands instead of what the client said.
        if self._parts.own and (self._parts.exact or _stands_in_fields(thought)):
            self.said[message.path] = _unwrapped_fields(self._parts.raw(message))
        native = _own_native(thought)
        extras = native.get(CALL_CARRY)
        for call_id, extra in extras.items() if type(extras) is dict else ():
            if type(extra) is dict:
                self.carried.append((thought, len(self.calls), call_id, extra))
        carry = native.get(MESSAGE_CARRY)
        if type(carry) is dict:
            self.body[MESSAGE_CARRY] = merge(self.body.get(MESSAGE_CARRY), carry)

    def finish(self, message: Message, in_loop: bool) -> JSONObject | None:
        """The message, None when nothing is left of it. message: the first one of the turn."""
        fields, leading = self._reasoning()
        self._give_back()
        if not self._parts.exact:
            self._add_signature()
        content = leading + self.content
        calls, body = self.calls, self.body
        if not (content or self.refusals or calls or fields or body.keys() - _SPEAKER or self._parts.exact):
            return None
        optional = bool(self.refusals or calls or body.get("audio") or body.get("function_call"))
        body["content"] = self._content(content, optional, message)
        if self.refusals:
            body["refusal"] = "".join(self.refusals)
        if calls:
            body["tool_calls"] = calls
        if not (fields or leading or self._parts.exact):
            self._stand_in(fields, message, in_loop)
        return {**body, **fields}

    def _stand_in(self, fields: JSONObject, message: Message, in_loop: bool) -> None:
        """Put a blank where reasoning is demanded that is lost."""
        # "The `reasoning_content` in the thinking mode must be passed back to the API."
        target = self._parts.target
        demanded = target.reasoning_back == "always" or (
            target.reasoning_back == "tool_loop" and in_loop and bool(self.calls)
        )
        if demanded and target.reasoning_field is not None:
            fields[target.reasoning_field] = " "
            self._parts.ledger.add(
                LossCode.REPAIRED,
                message.path,
                "the upstream demands the reasoning of this turn: a blank stands for it",
            )

    def _add_signature(self) -> None:
        """Give the first call of a turn a signature, whoever made it."""
        # "Function call is missing a thought_signature in functionCall parts."
        if self._parts.target.thought_signatures and self.calls:
            self.calls[0] = merge(UNSIGNED_CALL, self.calls[0])

    def _content(self, content: list[JSONObject], optional: bool, message: Message) -> JSON:
        """The content, None or "" when there is none."""
        # "content is required unless tool_calls is specified"
        raw = self._parts.raw(message).get("content") if self._parts.exact else None
        if not content:
            return raw if self._parts.exact else None if optional else ""
        if type(raw) is str and all(part.keys() == PLAIN_TEXT for part in content):
            # It may be in several parts here, cut where reasoning stood in it.
            return "".join([part["text"] for part in content])
        return self._parts.content(content)

    def _give_back(self) -> None:
        """Lay what came with a call onto it: by its id, or, as ids change on the way, by its place."""
        ids = [call["id"] for call in self.calls]
        for thought, place, call_id, extra in self.carried:
            at = ids.index(call_id) if call_id in ids else place
            if at < len(self.calls):
                self.calls[at] = merge(extra, self.calls[at])
            else:
                self._parts.ledger.dropped(thought.path, "the call that it belongs to is not there any more")

    def _reasoning(self) -> tuple[JSONObject, list[JSONObject]]:
        """Earlier reasoning of the turn: the members of the message, and parts that lead its content."""
        exact, ledger = self._parts.exact, self._parts.ledger
        field = self._parts.target.reasoning_field
        # Whether the message's own members are printed again.
        own = exact or (self._parts.own and field is not None)
        natives: list[JSONObject] = []
        texts: list[str] = []
        if own:
            natives += self.said.values()
        for thought in self.thoughts:
            if own and _stands_in_fields(thought):
                continue  # it is in the raw members
            native = _own_native(thought)
            if native:
                if own or field is not None or native.keys() <= _CARRIES:
                    natives.append(native)
                else:
                    ledger.dropped(thought.path, "the upstream takes no earlier reasoning")
                continue
            if thought.seal is not None:
                ledger.add(LossCode.FOREIGN_SEAL, thought.path, "only the provider that made it can read it")
            if thought.text and not exact:
                if field is None or field == "thinking_blocks":
                    # Blocks without a signature are refused, and signatures are not forged.
                    ledger.dropped(
                        thought.path, "the upstream takes no earlier reasoning that is not its own"
                    )
                else:
                    texts.append(thought.text)
        fields, leading = _joined(natives)
        if texts and field is not None:
            _add_texts(fields, field, texts)
        if own and not exact and field in _PLAIN_FIELDS:
            for other in (_PLAIN_FIELDS - {field}) & fields.keys():
                if fields.setdefault(field, fields[other]) == fields[other]:
                    del fields[other]  # the same words under the upstream's name of it
        return fields, leading


def _is_cut(before: Part, part: Part) -> bool:
    """Whether a citation has cut the two out of one text, so that nothing stood between them."""
    if not isinstance(before, Text) or not isinstance(part, Text):
        return False
    cited = before.citations is not None or part.citations is not None
    return cited and before.cache is None and not (before.stand_in or part.stand_in)


def _call_body(call: ToolCall) -> JSONObject:
    if call.kind is _CUSTOM:
        custom = {"name": call.name, "input": call.input}
        return {"id": call.call_id, "type": "custom", "custom": custom}
    # A call without arguments must still hold a JSON object.
    arguments = "{}" if not call.input or call.input.isspace() else call.input
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.call_id, "type": "function", "function": function}


def _own_native(thought: Thought) -> JSONObject:
    """What a server of this protocol sealed, {} for any other seal and for none."""
    seal = thought.seal
    if seal is None or seal.origin != NAME or type(seal.native) is not dict:
        return {}
    return seal.native


def _stands_in_fields(thought: Thought) -> bool:
    """Whether a thought of a Chat request is printed with the raw members of its message."""
    steps = thought.path.split("/", 4)
    return len(steps) > 3 and steps[3] in REASONING_FIELDS and not thought.path.endswith(_WRAPPED)


def _unwrapped_fields(raw: JSONObject) -> JSONObject:
    """The reasoning members of a raw message, without entries that hold our own wrapped seals."""
    fields: JSONObject = {}
    for key in REASONING_FIELDS:
        value = raw.get(key)
        if type(value) is list:
            value = [entry for entry in value if not is_wrapped_entry(entry)]
        if value:
            fields[key] = value
    return fields


def _joined(natives: list[JSONObject]) -> tuple[JSONObject, list[JSONObject]]:
    """Native reasoning of several blocks in one message. Only members that hold reasoning are taken: without a
    secret, a client could have written the rest."""
    fields: JSONObject = {}
    leading: list[JSONObject] = []
    for native in natives:
        content = native.get("content")
        if type(content) is list:
            leading += [part for part in content if type(part) is dict and part.get("type") == "thinking"]
        for key in REASONING_FIELDS:
            value, before = native.get(key), fields.get(key)
            if not value:
                continue
            if type(value) is list and type(before) is list:
                entries = Entries()
                for entry in (*before, *value):
                    entries.add(entry)
                value = entries.whole()
            elif type(value) is str and type(before) is str:
                value = f"{before}\n\n{value}"
            fields[key] = value
    return fields, leading


def _add_texts(fields: JSONObject, field: str, texts: list[str]) -> None:
    """Put reasoning that is plain text under the name that the upstream reads."""
    before = fields.get(field)
    if field == "reasoning_details":
        entries: list[JSON] = list(before) if type(before) is list else []
        for number, text in enumerate(texts, len(entries)):
            entries.append({"type": "reasoning.text", "text": text, "format": "unknown", "index": number})
        fields[field] = entries
    else:
        fields[field] = "\n\n".join([before, *texts] if type(before) is str else texts)
