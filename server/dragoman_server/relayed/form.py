"""Read forms (multipart/form-data) as they arrive, and write another name of the model into them.

The rules are RFC 7578's and RFC 2046's, 5.1, but stricter: a form that two readers may read differently is refused,
because the upstream has to find the same model in it as the gateway, which decides who may use it.
"""

import re
from enum import Enum, auto
from typing import ClassVar

from dragoman import RemoteProtocolError

# openai-python sends one part for each of its parameters, and one for each image: at most 16.
MAX_PARTS = 128
# Bytes of the headers of one part.
MAX_HEADER_BYTES = 8 * 1024
# Characters of a model's name, as in JSON.
MAX_MODEL_BYTES = 1024

_CRLF = b"\r\n"
_LINE = rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t -~\x80-\xff]*)"
# `; name=value` or `; name="value"`. Browsers and SDKs write %22 or \" for a quote.
_PARAMETER = re.compile(
    rb"[ \t]*;[ \t]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)=(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;\",]+))"
)
# "a boundary ... consisting of 1 to 70 characters from a set of characters known to be very robust" -- RFC 2046, 5.1.1
_BOUNDARY = rb"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]"
_PLAIN_ENCODINGS = frozenset({b"7bit", b"8bit", b"binary"})


def boundary_of(content_type: str) -> bytes:
    """Return the boundary of a form. Raises RemoteProtocolError."""
    _, mark, rest = content_type.encode("latin-1", "replace").partition(b";")
    found = [value for name, value in _parameters(mark + rest) if name == b"boundary"]
    if len(found) != 1 or re.fullmatch(_BOUNDARY, found[0]) is None:
        raise _broken("content-type has no boundary, or not one that RFC 2046 allows")
    return found[0]


class _FormState(Enum):
    DELIMITER = auto()
    HEADERS = auto()
    CONTENT = auto()
    MODEL = auto()
    END = auto()


class Form:
    """Passes a form on, with another model in it. Its methods raise RemoteProtocolError.

    Args:
        boundary: from boundary_of().
        model: the name to write, None for the one that is there.
        expected: the name that has to be there, None for any, or none.
        adds: the form has none, and gets a field with the name to write.

    Attributes:
        model: The name that is there, None until it was read.
    """

    def __init__(
        self, boundary: bytes, model: str | None = None, expected: str | None = None, *, adds: bool = False
    ) -> None:
        self.model: str | None = None
        self._added = model_field(boundary, model) if adds and model is not None else b""
        self._delimiter = b"\r\n--" + boundary
        self._new, self._expected = model, expected
        # The first delimiter has no line before it.
        self._held = bytearray(_CRLF)
        self._checked = 0  # bytes of it in which the end was not found
        self._is_first = True
        self._state = _FormState.DELIMITER
        self._parts = 0

    def receive_data(self, data: bytes) -> bytes:
        """Take bytes of the form, and return those to pass on."""
        self._held += data
        out: list[bytes] = []
        while (passed := self._steps[self._state](self)) is not None:
            out.append(passed)
        return b"".join(out)

    def receive_eof(self) -> bytes:
        """Take the end of the body, and return the rest."""
        if self._state is not _FormState.END:
            raise _broken("it ends before its last boundary")
        if self._expected is not None and self.model is None:
            raise RemoteProtocolError(
                f"the form has no model, and the request names {self._expected[:100]!a}",
                path="/model",
                code="invalid_value",
            )
        return b""

    def _take(self, size: int, state: _FormState) -> bytes:
        """Return so many of the held bytes, and go on in this state."""
        taken = bytes(self._held[:size])
        del self._held[:size]
        self._checked, self._state = 0, state
        return taken

    def _find(self, end: bytes) -> int:
        """Return the place of `end` in the held bytes, -1 if it is not there yet."""
        at = self._held.find(end, max(0, self._checked - len(end) + 1))
        self._checked = len(self._held)
        return at

    # Each step returns bytes to pass on, or None if it needs more.

    def _delimit(self) -> bytes | None:
        size = len(self._delimiter)
        if len(self._held) < size + 2:
            return None
        if not self._held.startswith(self._delimiter):
            raise _broken("it does not begin with its boundary")
        end = self._held[size : size + 2]
        if end == b"--":
            state = _FormState.END
        elif end == _CRLF:
            state, self._parts = _FormState.HEADERS, self._parts + 1
        else:
            raise _broken("it has other text behind a boundary")
        if self._parts > MAX_PARTS:
            raise RemoteProtocolError(f"the form has more than {MAX_PARTS} parts", status=413)
        passed = self._take(size + 2, state)
        passed, self._is_first = self._added + passed[2:] if self._is_first else passed, False
        return passed

    def _read_headers(self) -> bytes | None:
        at = self._find(b"\r\n\r\n")
        if max(at, len(self._held) if at < 0 else 0) > MAX_HEADER_BYTES:
            raise _broken(f"the headers of a part have more than {MAX_HEADER_BYTES} bytes")
        if at < 0:
            return None
        is_model = _is_model(bytes(self._held[:at]))
        if is_model and self.model is not None:
            raise _broken("it has two fields with the name model")
        return self._take(at + 4, _FormState.MODEL if is_model else _FormState.CONTENT)

    def _pass_content(self) -> bytes | None:
        at = self._find(self._delimiter)
        if at >= 0:
            return self._take(at, _FormState.DELIMITER)
        safe = len(self._held) - len(self._delimiter) + 1
        if safe <= 0:
            return None
        passed = self._take(safe, _FormState.CONTENT)
        self._checked = len(self._held)
        return passed

    def _read_model(self) -> bytes | None:
        at = self._find(self._delimiter)
        if (at if at >= 0 else len(self._held) - len(self._delimiter)) > MAX_MODEL_BYTES:
            raise _broken(f"its model has more than {MAX_MODEL_BYTES} bytes")
        if at < 0:
            return None
        value = self._take(at, _FormState.DELIMITER)
        try:
            self.model = value.decode()
        except UnicodeDecodeError:
            raise _broken("its model is not UTF-8") from None
        if not self.model.isprintable() or not self.model:
            raise _broken("its model is empty, or has control characters")
        if self._expected not in (None, self.model):
            raise RemoteProtocolError(
                f"the form has the model {self.model[:100]!a}, and the request names {str(self._expected)[:100]!a}",
                path="/model",
                code="invalid_value",
            )
        return value if self._new is None else self._new.encode()

    def _pass_end(self) -> bytes | None:
        return self._take(len(self._held), _FormState.END) if self._held else None

    _steps: ClassVar = {
        _FormState.DELIMITER: _delimit,
        _FormState.HEADERS: _read_headers,
        _FormState.CONTENT: _pass_content,
        _FormState.MODEL: _read_model,
        _FormState.END: _pass_end,
    }


def model_field(boundary: bytes, model: str) -> bytes:
    """Return a field with the name of a model, for the beginning of a form."""
    return b'--%b\r\nContent-Disposition: form-data; name="model"\r\n\r\n%b\r\n' % (boundary, model.encode())


def _is_model(headers: bytes) -> bool:
    """True if these are the headers of the field `model`."""
    lines = [re.fullmatch(_LINE, line) for line in headers.split(_CRLF)]
    fields = {line[1].lower(): line[2].strip() for line in lines if line is not None}
    if len(fields) < len(lines):
        raise _broken("a header of a part is malformed, or there twice")
    kind, mark, rest = fields.get(b"content-disposition", b"").partition(b";")
    parameters = _parameters(mark + rest)
    names = [value for name, value in parameters if name == b"name"]
    others = [name for name, _ in parameters]
    if kind.strip().lower() != b"form-data" or len(names) != 1 or b"name*" in others:
        raise _broken("a part has no content-disposition: form-data with one name")
    if names[0].lower() != b"model":
        return False
    encoding = fields.get(b"content-transfer-encoding", b"binary").lower()
    if (
        names[0] != b"model"
        or b"filename" in others
        or b"filename*" in others
        or encoding not in _PLAIN_ENCODINGS
    ):
        raise _broken("its model is no plain field")
    return True


def _parameters(text: bytes) -> list[tuple[bytes, bytes]]:
    """Return the parameters of a header, names in lower case. Raises RemoteProtocolError."""
    found, at = [], 0
    while at < len(text):
        match = _PARAMETER.match(text, at)
        if match is None:
            if text[at:].strip(b" \t;"):
                raise _broken("the parameters of a header are malformed")
            break
        value = match[3] if match[2] is None else re.sub(rb"\\(.)", rb"\1", match[2])
        found.append((match[1].lower(), value))
        at = match.end()
    return found


def _broken(problem: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"the form cannot be read: {problem}")
