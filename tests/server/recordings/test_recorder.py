"""A gateway with the setting `record` writes one file for each request, without secrets, and bounded.

In real time, because files are written in a thread.
"""

# ruff: noqa: E501 -- the tables are read by row

# ruff: noqa: ASYNC240, E501 -- the files are small and local, and the tables are read by row

import json
import os
import re
import resource
import stat
import threading
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import pytest
import rows
from gateway.fakes import FakeClient, Script, websocket
from gateway.simulated import KEY, gateway
from virtual_time import REAL_BACKENDS

from dragoman_server.proxying import upload
from dragoman_server.recordings import recorder
from dragoman_server.recordings.document import (
    Recording,
    RecordingError,
    UnrecordedBody,
    as_text,
    encode,
    joined,
    load,
)
from dragoman_server.recordings.listing import find_recordings
from dragoman_server.recordings.recorder import write
from dragoman_server.recordings.redaction import (
    mask_pieces,
    redact_headers,
    redact_pieces,
    redact_query,
    redact_texts,
)
from dragoman_server.recordings.replay import first_difference, replay
from dragoman_server.settings.secret import Mask

pytestmark = [pytest.mark.anyio, pytest.mark.backends(*REAL_BACKENDS)]

QUESTION = "Where is the secret garden?"


def body_of(model: str, *, stream: bool = True) -> dict[str, Any]:
    messages = [{"role": "user", "content": QUESTION}]
    return {"model": model, "max_tokens": 99, "stream": stream, "messages": messages}


def recordings(folder: Path) -> list[Recording]:
    return [load(path) for path in sorted(folder.glob("*.json"))]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("upstream", ["chat", "messages", "stateless"])
async def test_both_sides_are_recorded_and_replayed(tmp_path: Path, upstream: str, stream: bool) -> None:
    async with gateway(record=str(tmp_path)) as running:
        headers = {"authorization": "Bearer sk-client-0123456789"}
        model = f"{upstream}/reasoning"
        client = await running.call("/v1/messages", body_of(model, stream=stream), headers=headers)
    [recording] = recordings(tmp_path)
    assert joined(recording.response.pieces) == client.body
    assert (recording.response.status, recording.response.completed) == (200, True)
    assert recording.id in client.headers.values()
    [attempt] = recording.attempts
    assert (attempt.upstream, attempt.model, attempt.status) == (upstream, "reasoning", 200)
    assert attempt.body.encode() == running.upstreams.sent[-1].content
    assert [piece.at_s for piece in attempt.pieces] == sorted(piece.at_s for piece in attempt.pieces)
    assert first_difference(recording, replay(recording)) is None


async def test_each_attempt_has_its_account_and_all_losses_are_recorded(tmp_path: Path) -> None:
    place = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": f"{KEY}"}}
    body = {**body_of("chat/echo"), "messages": [{"role": "user", "content": [place] * 60}]}
    async with gateway(record=str(tmp_path)) as running:
        client = await running.call("/v1/messages", body)
    [recording] = recordings(tmp_path)
    assert [attempt.account for attempt in recording.attempts] == ["chat/default"]
    count, *named = re.split("[;,] ", client.headers["dragoman-loss"])
    assert len(recording.losses) == int(count) > len(named)
    assert set(recording.losses) > {each.replace("=", " ") for each in named[:-1]}


async def test_a_request_at_the_path_of_a_cloud_is_recorded_as_it_is_served(tmp_path: Path) -> None:
    body = {
        **body_of(""),
        "anthropic_version": "bedrock-2023-05-31",
        "anthropic_beta": ["context-1m-2025-08-07"],
    }
    del body["model"], body["stream"]
    async with gateway(record=str(tmp_path)) as running:
        await running.call("/model/messages/echo/invoke-with-response-stream", body)
    [recording] = recordings(tmp_path)
    assert recording.request.path == "/v1/messages"
    assert dict(recording.request.headers)["anthropic-beta"] == "context-1m-2025-08-07"
    assert json.loads(recording.request.body)["model"] == "messages/echo"
    assert first_difference(recording, replay(recording)) is None


@pytest.mark.parametrize("upstream", ["chat", "stateless"])
async def test_each_request_of_a_websocket_is_recorded(tmp_path: Path, upstream: str) -> None:
    record = str(tmp_path)
    async with gateway(record=record, keepalive_s=0.01) as running, websocket(running.app) as client:
        for text in ("Hi", "Who?"):
            client.create(model=f"{upstream}/slow@20", input=text, store=False)
            events = await client.turn()
            assert "response.in_progress" in [event["type"] for event in events[2:]]
    assert sorted(json.loads(each.request.body)["input"] for each in recordings(tmp_path)) == ["Hi", "Who?"]
    for recording in recordings(tmp_path):
        assert (recording.response.status, recording.response.completed) == (200, True)
        assert b"response.in_progress" in joined(recording.response.pieces)
        assert first_difference(recording, replay(recording)) is None


@pytest.mark.parametrize(
    ("query", "headers", "recorded"),
    [
        ("", {"x-api-key": "sk-client-0123456789"}, ("x-api-key", "****")),
        ("", {"x-goog-api-key": "sk-client-0123456789"}, ("x-goog-api-key", "****")),
        ("?key=sk-client-0123456789", {}, None),
    ],
)
@pytest.mark.promise("S3", "S4")
async def test_no_secret_is_recorded(
    query: str, headers: dict[str, str], recorded: tuple[str, str] | None, tmp_path: Path
) -> None:
    error = {"message": f"the key {KEY} is wrong", "type": "x", "code": None, "param": None}
    leak = json.dumps({"error": error})
    refusal = Script([leak[:40].encode(), leak[40:].encode()], status=400, headers=[("set-cookie", KEY)])
    async with gateway({"/chat/completions": refusal}, record=str(tmp_path)) as running:
        client = await running.call(f"/v1/messages{query}", body_of("chat/x"), headers=headers)
    assert client.status == 400
    assert "sk-client-0123456789" not in repr(running.last)
    [path] = tmp_path.glob("*.json")
    text = path.read_text()
    assert KEY not in text
    assert "sk-client-0123456789" not in text + client.body.decode()
    [recording] = recordings(tmp_path)
    assert recorded is None or recorded in recording.request.headers
    assert recording.request.query == ("key=****" if query else "")
    [attempt] = recording.attempts
    assert ("authorization", "****") in attempt.headers
    assert f"the key {'*' * len(KEY)} is wrong" in as_text(joined(attempt.pieces))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.prints_secrets  # of the client, which sends it
@pytest.mark.parametrize("upstream", ["chat", "messages", "stateless"])
async def test_a_secret_that_a_model_repeats_is_not_recorded(tmp_path: Path, upstream: str) -> None:
    """The simulator sends it in several deltas."""
    body = {**body_of(f"{upstream}/echo"), "messages": [{"role": "user", "content": f"It is {KEY}."}]}
    async with gateway(record=str(tmp_path)) as running:
        await running.call("/v1/messages", body)
    [recording] = recordings(tmp_path)
    text = f"It is {'*' * len(KEY)}."
    assert text in recording.request.body
    for pieces in (recording.response.pieces, recording.attempts[0].pieces):
        deltas = re.findall(rb'"(?:text|content|delta)":\s*"([^"]*)"', joined(pieces))
        assert KEY.encode() not in joined(pieces)
        assert text.encode() in b"".join(deltas)
    assert first_difference(recording, replay(recording)) is None


SECRET = "sk-0123456789"


def chunk(text: str, index: int = 0) -> str:
    return f'data: {{"choices":[{{"index":{index},"delta":{{"content":"{text}"}}}}]}}\n\n'


@pytest.mark.parametrize(
    ("pieces", "masked"),
    [
        (["a ", "sk-01", "234", "56789", " b"], ["a ", "*****", "***", "*****", " b"]),
        ([chunk("sk-01"), chunk("2345"), chunk("6789 x")], [chunk("*****"), chunk("****"), chunk("**** x")]),
        # Other texts between.
        ([chunk("sk-01"), chunk("sk-0", 1), chunk("23456789"), chunk("123456789", 1)], [chunk("*****"), chunk("****", 1), chunk("********"), chunk("*********", 1)]),
        ([chunk("sk-01"), 'data: {"usage":{"note":"none"}}\n\n', chunk("23456789")], [chunk("*****"), 'data: {"usage":{"note":"none"}}\n\n', chunk("********")]),
        (['data: [{"content":"sk-01"},{"content":"a"}]\n\n', 'data: [{"content":"23456789"},{"content":"b"}]\n\n'], ['data: [{"content":"*****"},{"content":"a"}]\n\n', 'data: [{"content":"********"},{"content":"b"}]\n\n']),
        # Two secrets, of which one delta has an end and a beginning; JSON in JSON; letters that are escaped.
        ([chunk("sk-01"), chunk("23456789 sk-"), chunk("0123456789")], [chunk("*****"), chunk("******** ***"), chunk("**********")]),
        ([chunk(r'{\"k\": \"s\\u006'), chunk(r'b-0123456789\"}')], [chunk(r'{\"k\": \"*******'), chunk(r'************\"}')]),
        ([chunk("pass-wörd-"), chunk("12345")], [chunk("***********"), chunk("*****")]),
        # No secrets: another order, another text, too short.
        ([chunk("23456789"), chunk("sk-01")], [chunk("23456789"), chunk("sk-01")]),
        ([chunk("sk-01"), chunk("23456789", 1)], [chunk("sk-01"), chunk("23456789", 1)]),
        ([], []),
    ],
)  # fmt: skip
async def test_a_secret_is_found_across_cuts(pieces: list[str], masked: list[str]) -> None:
    found = mask_pieces([piece.encode() for piece in pieces], Mask([SECRET, "pass-wörd-12345"]))
    assert [piece.decode() for piece in found] == masked


async def test_a_recording_is_made_in_a_thread_and_in_linear_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, seconds = [], []

    def masked(pieces: Sequence[bytes], mask: Mask) -> list[bytes]:
        started = time.thread_time()
        result = redact_pieces(mask_pieces([*pieces, b'data: "' + b'\\"' * 40_000], mask))[:-1]
        threads.append(threading.current_thread())
        seconds.append(time.thread_time() - started)
        return result

    monkeypatch.setattr(recorder, "mask_pieces", masked)
    async with gateway(record=str(tmp_path)) as running:
        await running.call("/v1/messages", body_of("chat/echo"))
    assert recordings(tmp_path)
    assert threading.main_thread() not in threads
    assert max(seconds) < 3


@pytest.mark.parametrize(
    ("query", "redacted"),
    [
        ("", ""),
        ("beta=true", "beta=true"),
        ("key=AIza0123456789&beta=true", "key=****&beta=true"),
        ("api-version=1&key=a=b=c=d=e", "api-version=1&key=****"),
        ("0123456789abcdef", "****"),
    ],
)
async def test_a_query_has_no_keys(query: str, redacted: str) -> None:
    assert redact_query(query) == redacted


@pytest.mark.parametrize("upstream", ["chat", "messages", "stateless"])
async def test_texts_are_left_out_on_request(tmp_path: Path, upstream: str) -> None:
    async with gateway(record=str(tmp_path), record_texts=False) as running:
        await running.call("/v1/messages", body_of(f"{upstream}/echo"))
    [path] = tmp_path.glob("*.json")
    for word in ("secret", "garden", "Where"):
        assert word not in path.read_text()
    [recording] = recordings(tmp_path)
    assert not recording.texts
    assert first_difference(recording, replay(recording)) is None


async def test_a_client_that_leaves(tmp_path: Path) -> None:
    async with gateway(record=str(tmp_path)) as running:
        client = FakeClient(json.dumps(body_of("chat/slow")).encode(), leaves_at=b"content_block_delta")
        await running.call("/v1/messages", client=client)
    [recording] = recordings(tmp_path)
    assert not recording.response.completed
    assert first_difference(recording, replay(recording)) is None


async def test_a_response_in_the_background_is_recorded_to_its_end(tmp_path: Path) -> None:
    async with gateway(record=str(tmp_path), response_store="memory") as up:
        await up.call("/v1/responses", {"model": "chat/pause@0.2", "input": QUESTION, "background": True})
        assert recordings(tmp_path) == []
        await up.app.drained()
        [recording] = recordings(tmp_path)
        assert recording.attempts[0].status == 200
        assert recording.attempts[0].body


async def test_what_is_refused_without_a_plan_is_not_recorded(tmp_path: Path) -> None:
    async with gateway(record=str(tmp_path)) as running:
        await running.call("/v1/messages", b"{")
        await running.get("/v1/models")
    assert recordings(tmp_path) == []


async def test_what_is_too_much_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MAX_RECORDED_BYTES", 500)
    async with gateway(record=str(tmp_path)) as running:
        client = await running.call("/v1/messages", body_of("chat/echo"))
    assert client.finished
    [recording] = recordings(tmp_path)
    assert not recording.complete
    assert len(recording.request.body) + len(recording.attempts[0].body) <= 500


async def test_pieces_count_besides_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MAX_RECORDED_BYTES", 1000)
    unfinished = recorder.UnfinishedRecording({"type": "http"})
    for _ in range(100):
        await unfinished.take({"type": "http.response.body", "body": b"x", "more_body": True})
    assert [data for _, data in unfinished.response.pieces] == [b"x"] * (1000 // 129 + 1)
    assert not unfinished.complete


async def test_a_full_disk_leaves_no_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write(tmp_path, some_recording(1, 2), max_files=3, max_age_s=1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


async def test_a_folder_that_cannot_be_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "file"
    place.touch()
    async with gateway(record=str(place)) as running:
        client = await running.call("/v1/messages", body_of("chat/echo"))
    assert client.status == 200
    expected = ["dragoman.recordings"]
    assert [each.name for each in caplog.records if "is not recorded" in each.message] == expected


def some_recording(number: int, at: int) -> Recording:
    return Recording(
        id=f"r{number}", time=at, dragoman="0", request=recorder.RecordedRequest("openai_chat", "/"), response=recorder.RecordedResponse()
    )  # fmt: skip


async def test_files_are_bounded_in_number_and_age(tmp_path: Path) -> None:
    (tmp_path / "notes.json").touch()
    (tmp_path / "20200101T000000Z-r0.part").touch()  # of a process that was killed
    now = time.time()
    for number, age in enumerate((9000, 300, 200, 100, 0)):
        write(tmp_path, some_recording(number, int(now - age)), max_files=3, max_age_s=1000)
    names = sorted(path.name.rpartition("-")[2] for path in tmp_path.iterdir())
    assert names == ["notes.json", "r2.json", "r3.json", "r4.json"]
    write(tmp_path, some_recording(5, int(now)), max_files=3, max_age_s=150)
    assert len(list(tmp_path.iterdir())) == 4
    assert stat.S_IMODE(os.stat(tmp_path).st_mode) & 0o700 == 0o700
    await anyio.lowlevel.checkpoint()


def redacted(body: bytes) -> bytes:
    """Return what becomes of a body, which is the same in pieces."""
    found = redact_texts(body)
    assert redact_pieces([body[:5], body[5:9], body[9:]]) == [found[:5], found[5:9], found[9:]]
    return found


def test_texts_are_replaced_letter_by_letter() -> None:
    rows.check(
        Path(__file__).with_name("texts.txt"),
        lambda lines: [redacted(lines[0].replace("⏎", "\n").encode()).decode().replace("\n", "⏎")],
    )
    # A search for its end from each of its quotes would not end within hours.
    endless = b'{"' + b'\\"' * 1_000_000
    assert redacted(endless) == endless


async def test_credentials_in_headers() -> None:
    headers = [("Authorization", "Bearer abc"), ("x-team", "abc")]
    expected = (("Authorization", "****"), ("x-team", "?"))
    assert redact_headers(headers, lambda text: text.replace("abc", "?")) == expected
    secrets = [
        "x-goog-api-key",
        "ocp-apim-subscription-key",
        "X-Amz-Security-Token",
        "set-cookie",
        "proxy-authorization",
        "anthropic-mcp-token",
    ]
    # What proxies add that know their users.
    secrets += [
        "cf-access-jwt-assertion",
        "cf-access-client-secret",
        "x-forwarded-access-token",
        "x-amzn-oidc-data",
    ]
    for name in (*secrets, "sec-websocket-protocol"):
        assert redact_headers([(name, "abc")], str) == ((name, "****"),)
    shown = {
        "anthropic-ratelimit-tokens-remaining": "9",
        "www-authenticate": "Bearer",
        "x-session-id": "abc",
        "idempotency-key": "abc",
        "x-amzn-bedrock-input-token-count": "9",
        "x-litellm-key-spend": "0.1",
        "access-control-allow-credentials": "true",
        "x-question": "why? because=of-something-long",
        "user-agent": "me/1.0",
        "sec-ch-ua-mobile": "?0",
    }
    assert redact_headers(shown.items(), str) == (*shown.items(),)
    referer = [("referer", "http://localhost/page?key=0123456789&a=1")]
    assert redact_headers(referer, str) == (("referer", "http://localhost/page?key=****&a=1"),)


async def test_bytes_that_are_no_text_survive(tmp_path: Path) -> None:
    place = tmp_path / "r.json"
    piece = recorder.Piece(0.5, as_text(b"half \xc3"))
    place.write_bytes(encode(some_recording(1, 2)))
    assert load(place) == some_recording(1, 2)
    assert piece.data == b"half \xc3"


@pytest.mark.parametrize(
    ("data", "message"), [(b"{", "not a recording"), (b"{}", "not a recording"), (None, "No such file")]
)
async def test_a_file_that_is_no_recording(tmp_path: Path, data: bytes | None, message: str) -> None:
    place = tmp_path / "x.json"
    if data is not None:
        place.write_bytes(data)
    with pytest.raises(RecordingError, match=message):
        load(place)


# The other endpoints.

FORM = {"content-type": "multipart/form-data; boundary=b"}
PART = b'--b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n--b'
JSON_TYPE = [("content-type", "application/json")]


def hashed(data: bytes) -> tuple[int, str]:
    return len(data), sha256(data).hexdigest()


def of_file(file: UnrecordedBody | None) -> tuple[int, str] | None:
    return None if file is None else (file.size, file.sha256)


async def test_json_of_the_other_endpoints_is_recorded(tmp_path: Path) -> None:
    """Without secrets and, on request, without texts; and replay says that nothing is translated."""
    answer = Script([b'{"data":[{"embedding":[0.5]}],', b'"x":1}'], headers=JSON_TYPE)
    body = {"model": "chat/embed", "input": [QUESTION, KEY]}
    for texts in (True, False):
        async with gateway(
            {"/embeddings?token=0123456789": answer}, record=str(tmp_path), record_texts=texts
        ) as running:
            client = await running.call("/v1/embeddings?key=sk-client-0123456789&token=0123456789", body)
            assert client.status == 200
    shown, hidden = sorted(recordings(tmp_path), key=lambda each: not each.texts)
    assert (shown.request.method, shown.request.path, shown.model) == ("POST", "/v1/embeddings", "chat/embed")
    assert shown.request.query == "key=****&token=****"
    masked = [QUESTION, "*" * len(KEY)]
    assert json.loads(shown.request.body) == {**body, "input": masked}
    [attempt] = shown.attempts
    assert json.loads(attempt.body) == {"model": "embed", "input": masked}
    assert (attempt.method, attempt.account, attempt.status) == ("POST", "chat/default", 200)
    assert attempt.url.endswith("/embeddings?token=****")
    assert joined(attempt.pieces) == joined(shown.response.pieces) == client.body
    assert {shown.request.file, shown.response.file, attempt.file, attempt.response_file} == {None}
    assert QUESTION not in hidden.request.body + hidden.attempts[0].body
    with pytest.raises(RecordingError, match="relayed as they are, so there is nothing to translate again"):
        replay(shown)


async def test_of_files_only_sizes_and_hashes_are_recorded(tmp_path: Path) -> None:
    sound, form = b"\0sound\xff" * 9, PART % (b"model", b"chat/tts") + PART[3:] % (b"file", b"secret") + b"--"
    speech = Script([sound[:9], sound[9:]], headers=[("content-type", "audio/mpeg")])
    text = Script([b'{"text":"Hi"}'], headers=JSON_TYPE)
    wrong = Script([b'{"error":{"message":"no"}}'], status=404, headers=JSON_TYPE)
    scripts = {"/audio/speech": speech, "/audio/transcriptions": text, "/content": wrong}
    async with gateway(scripts, record=str(tmp_path)) as running:
        client = await running.call("/v1/audio/speech", {"model": "chat/tts", "input": "Hi"})
        assert client.body == sound
        await running.call("/v1/audio/transcriptions", form, headers=FORM)
    speaks, listens = sorted(recordings(tmp_path), key=lambda each: each.request.path)
    assert of_file(speaks.response.file) == of_file(speaks.attempts[0].response_file) == hashed(sound)
    assert (speaks.response.pieces, speaks.attempts[0].pieces, speaks.complete) == ((), (), True)
    assert of_file(listens.request.file) == hashed(form)
    assert of_file(listens.attempts[0].file) == hashed(form.replace(b"chat/tts", b"tts"))
    assert (listens.request.body, listens.attempts[0].body) == ("", "")
    assert joined(listens.response.pieces) == b'{"text":"Hi"}'
    assert "secret" not in "".join(path.read_text() for path in tmp_path.glob("*.json"))
    [found] = find_recordings(tmp_path, cursor=None, limit=1, model=None, text="speech").recordings
    assert (found.method, found.path, found.duration_s is not None) == ("POST", "/v1/audio/speech", True)


async def test_a_file_that_is_sent_while_it_arrives_is_hashed_as_it_passes(tmp_path: Path) -> None:
    """More than is held, with its model in the header."""
    form = PART % (b"model", b"chat/tts") + PART[3:] % (b"file", b"x" * upload.SMALL_BYTES) + b"--"
    text = Script([b'{"text":"Hi"}'], headers=JSON_TYPE)
    async with gateway({"/audio/transcriptions": text}, record=str(tmp_path)) as running:
        await running.call("/v1/audio/transcriptions", form, headers=FORM)
    [recording] = recordings(tmp_path)
    assert of_file(recording.request.file) == hashed(form)
    assert of_file(recording.attempts[0].file) == hashed(form.replace(b"chat/tts", b"tts"))
    assert sum(path.stat().st_size for path in tmp_path.glob("*.json")) < 16 * 1024
