"""Forms: the model is found and replaced wherever it is and however the form is cut; what is ambiguous is refused."""

import pytest

from dragoman import RemoteProtocolError
from dragoman_server.relayed.form import MAX_HEADER_BYTES, MAX_MODEL_BYTES, MAX_PARTS, Form, boundary_of

MODEL = b'Content-Disposition: form-data; name="model"'
FILE = b'Content-Disposition: form-data; name="file"; filename="a.mp3"\r\nContent-Type: audio/mpeg'
END = b"--b--\r\n"


def part(headers: bytes, content: bytes) -> bytes:
    return b"--b\r\n%b\r\n\r\n%b\r\n" % (headers, content)


def passed(form: Form, data: bytes, size: int) -> bytes:
    out = [form.receive_data(data[at : at + size]) for at in range(0, len(data), size)]
    return b"".join([*out, form.receive_eof()])


DATA = bytes(range(256)) * 3 + b"\r\n--\r\n--bb\r\n-b\r" + b"\r\n--"


@pytest.mark.parametrize("size", [1, 2, 7, 100_000])
@pytest.mark.parametrize(
    ("form", "model"),
    [
        (part(MODEL, b"whisper-1") + part(FILE, b"ID3" + DATA[:700]) + END, "whisper-1"),
        (part(FILE, b"ID3\r\n" + DATA[:700]) + part(MODEL, b"whisper-1") + END, "whisper-1"),
        (part(FILE, b"") + part(MODEL, "modèle 1".encode()) + b"--b--", "modèle 1"),
        (part(MODEL + b"\r\nContent-Transfer-Encoding: 8bit", b"m") + END + b"\r\nan epilogue --b", "m"),
        (part(b"content-disposition:form-data;name=model", b"m") + END, "m"),
        (part(FILE, b"x") + END, None),
        # A file whose name looks like the field's.
        (part(b'Content-Disposition: form-data; name="file"; filename="a; name=\\"model\\""', b"x") + END, None),
        (END, None),
    ],
)  # fmt: skip
def test_the_model_is_found_and_replaced_and_no_other_byte(form: bytes, model: str | None, size: int) -> None:
    plain = Form(b"b")
    assert passed(plain, form, size) == form
    assert plain.model == model
    named = (model or "-").encode()
    found = passed(Form(b"b", "another/name"), form, size)
    assert found == form.replace(b"\r\n\r\n" + named + b"\r\n", b"\r\n\r\nanother/name\r\n")


HUGE = b"x" * MAX_HEADER_BYTES


@pytest.mark.parametrize("size", [1, 100_000])
@pytest.mark.parametrize(
    ("form", "problem"),
    [
        (b"", "ends before its last boundary"),
        (b"preamble\r\n" + part(MODEL, b"m") + END, "does not begin with its boundary"),
        (part(MODEL, b"m"), "ends before its last boundary"),
        (part(MODEL, b"m")[:-3], "ends before its last boundary"),
        (part(MODEL, b"m") + b"--b-", "ends before its last boundary"),
        (part(MODEL, b"m") + b"--bX\r\n", "other text behind a boundary"),
        (part(FILE, b"\r\n--b \r\n"), "other text behind a boundary"),
        (part(MODEL, b"m") * 2 + END, "two fields with the name model"),
        (part(MODEL, b"m") + part(MODEL.replace(b"model", b"Model"), b"n") + END, "no plain field"),
        (part(MODEL + b'; filename="x"', b"m") + END, "no plain field"),
        (part(MODEL + b"; filename*=UTF-8''x", b"m") + END, "no plain field"),
        (part(MODEL + b"\r\nContent-Transfer-Encoding: base64", b"bQ==") + END, "no plain field"),
        (part(MODEL + b"; name=other", b"m") + END, "one name"),
        (part(MODEL + b"; name*=UTF-8''other", b"m") + END, "one name"),
        (part(MODEL + b"\r\n" + MODEL.replace(b"model", b"file"), b"m") + END, "there twice"),
        (part(b'Content-Disposition: attachment; name="model"', b"m") + END, "content-disposition"),
        (part(b"Content-Type: text/plain", b"m") + END, "content-disposition"),
        (part(MODEL + b'; x="', b"m") + END, "parameters of a header"),
        (part(MODEL + b"\n: x", b"m") + END, "malformed"),
        (part(MODEL + b"\r\n folded", b"m") + END, "malformed"),
        (b"--b\r\n\r\n\r\nm\r\n" + END, "malformed"),
        (b"--b\r\nX: " + HUGE, "headers of a part"),
        (part(b"X: " + HUGE, b""), "headers of a part"),
        (part(FILE, b"") * MAX_PARTS + END[:3] + b"\r\n", "more than 128 parts"),
        (part(MODEL, b"m" * MAX_MODEL_BYTES + b"mm") + END, "model has more than"),
        (part(MODEL, b"m" * (MAX_MODEL_BYTES + 100))[:-9], "model has more than"),
        (part(MODEL, b"") + END, "empty"),
        (part(MODEL, b"a\r\nx: y") + END, "control characters"),
        (part(MODEL, b"\xff") + END, "not UTF-8"),
    ],
)
def test_what_two_readers_may_read_differently_is_refused(form: bytes, problem: str, size: int) -> None:
    with pytest.raises(RemoteProtocolError, match=problem):
        passed(Form(b"b"), form, size)


def test_the_model_has_to_be_the_one_that_the_request_has_named() -> None:
    form = part(FILE, b"x") + part(MODEL, b"m") + END
    assert passed(Form(b"b", "n", "m"), form, 3) == form.replace(b"\r\nm\r\n", b"\r\nn\r\n")
    with pytest.raises(RemoteProtocolError, match="the form has the model 'm', and the request names 'n'"):
        passed(Form(b"b", "n", "n"), form, 3)
    with pytest.raises(RemoteProtocolError, match="the form has no model, and the request names 'm'"):
        passed(Form(b"b", "n", "m"), part(FILE, b"x") + END, 3)


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        ("multipart/form-data; boundary=abc", b"abc"),
        ('Multipart/Form-Data ; charset=utf-8;Boundary="a b\'():?"', b"a b'():?"),
        ("multipart/form-data; boundary=----=_Part_1", b"----=_Part_1"),
        ("multipart/form-data", None),
        ("multipart/form-data; boundary=", None),
        ("multipart/form-data; boundary=a; boundary=b", None),
        (f"multipart/form-data; boundary={'a' * 71}", None),
        ('multipart/form-data; boundary="a "', None),
        ('multipart/form-data; boundary="a\\"b"', None),
    ],
)
def test_boundaries(content_type: str, boundary: bytes | None) -> None:
    if boundary is not None:
        assert boundary_of(content_type) == boundary
        return
    with pytest.raises(RemoteProtocolError, match=r"boundary|malformed"):
        boundary_of(content_type)
