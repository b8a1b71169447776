"""Thought signatures: opaque bytes that the model puts on a part and wants back with the same part, at the same place.

In events and in the document a signature is reasoning before (of a text: behind) the part that it is on. Its native
object is the whole part, or `{"of": "functionCall" | "text", "thoughtSignature": ...}` for a part that is there anyway.
"Don't merge a part containing a signature with one that does not", nor move it to another one
(ai.google.dev/gemini-api/docs/thought-signatures, read 2026-11-22).

`response_content_in` (from servers) and `request_messages_in` (from clients) read signatures; `request_messages_out`
and `response_out` put them onto the parts again, with SignedParts. Between the two, a client of another protocol has
them wrapped (`_ir.wrapped_signatures`): a Messages client as the `signature` of a thinking block.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dragoman._ir.losses import Ledger
from dragoman._wire.json import JSON, JSONObject
from dragoman.codec import SignaturePlaces
from dragoman.protocols.gemini.checks import rename
from dragoman.protocols.gemini.tables import DUMMY_SIGNATURE, SIGNATURE, SIGNED


class SignedParts(msgspec.Struct):
    """Puts signatures onto the parts of one content of the model.

    parts: the parts so far. placeholders: the first call gets the vendor's placeholder if it has no signature.
    waits: finish() is needed, because a signature waits for its part.

    "Function call is missing a thought_signature in functionCall parts." (openclaude#67, read 2026-11-22) Earlier turns
    are not checked, but a placeholder that went away would change what the upstream has cached.
    """

    parts: list[JSONObject] = []
    placeholders: bool = False
    waits: bool = False
    _called: list[JSONObject] = []  # the last parts with a call
    _calls: list[str] = []  # signatures that wait for a call
    _texts: list[str] = []  # and for a text

    def sign(self, native: JSONObject) -> None:
        """Add a signature, or a whole part that has one."""
        kind, signature = native.get(SIGNED), native.get(SIGNATURE)
        last = self.parts[-1] if self.parts else {}
        if kind is None or type(signature) is not str:
            self.parts.append(native)
        elif kind == "functionCall":
            self._calls.append(signature)
            self.waits = True
        elif kind == "text" and "text" in last and SIGNATURE not in last and last.get("thought") is not True:
            self.parts[-1] = {**last, SIGNATURE: signature}
        elif kind == "text":
            self._texts.append(signature)
            self.waits = True

    def add(self, part: JSONObject) -> None:
        """Add a part, with the signature that waits for it."""
        if "functionCall" in part:
            if self._calls:
                part = {**part, SIGNATURE: self._calls.pop(0)}
            elif self.placeholders and self._called is not self.parts and SIGNATURE not in part:
                part = {**part, SIGNATURE: DUMMY_SIGNATURE}
            self._called = self.parts
        elif self._texts and "text" in part:
            part = {**part, SIGNATURE: self._texts.pop(0)}
        self.parts.append(part)

    def finish(self) -> list[JSONObject]:
        """Return the parts, with those without text for what no text has come for, and begin another content."""
        parts, self.parts = self.parts, []
        if self.waits:
            for signature in self._texts:
                parts.append({"text": "", SIGNATURE: signature})
            self.waits, self._calls, self._texts = False, [], []
        return parts


# Signatures in a body that is relayed, see SignaturePlaces.


def _prepare(contents: list[JSON]) -> None:
    """Give members their names in lowerCamelCase, and parts their list: clients of proto3 JSON may send other forms."""
    for content in contents:
        rename(content)
        if type(content.get("parts")) is dict:
            content["parts"] = [content["parts"]]


def _without_signature(part: JSONObject) -> Iterable[JSON]:
    """Return a part without its signature, nothing if it is only there for that."""
    rest = {name: value for name, value in part.items() if name != SIGNATURE}
    if "functionCall" in part:
        return ({**rest, SIGNATURE: DUMMY_SIGNATURE},)
    return (rest,) if rest.get("text") != "" and rest else ()


def _replace_signed_part(
    part: JSONObject, native: JSONObject | None, message: JSONObject, path: str, ledger: Ledger
) -> Iterable[JSON]:
    """Return the part with the signature that a wrapped one holds."""
    if native is None:
        return (part,)
    return ({**part, SIGNATURE: native.get(SIGNATURE)} if native.get(SIGNED) else native,)


SIGNATURE_PLACES = SignaturePlaces(
    conversation="contents",
    members=("parts",),
    fields={"": SIGNATURE},
    prepare=_prepare,
    replace=_replace_signed_part,
    without=_without_signature,
)
