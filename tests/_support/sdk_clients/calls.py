"""The calls of the vendors' SDKs at the endpoints that are relayed, and what a scripted upstream answers.

A row is a call in the SDK's language, the request that reaches the upstream ("" for none), and the value of the call.
"""

# ruff: noqa: E501 -- the tables are read by row

import json
import sys
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

FILE = {
    "id": "file-abc123",
    "object": "file",
    "bytes": 1,
    "created_at": 1,
    "filename": "f",
    "purpose": "batch",
}
BATCH = {
    "id": "batch_123", "object": "batch", "endpoint": "/v1/embeddings", "input_file_id": "file-abc123",
    "completion_window": "24h", "status": "validating", "created_at": 1, "name": "b", "model": "m",
}  # fmt: skip
UPLOAD = {
    "id": "upload_123",
    "object": "upload",
    "bytes": 1,
    "created_at": 1,
    "filename": "f",
    "purpose": "batch",
}
MESSAGE_BATCH = {
    "id": "msgbatch_0123", "type": "message_batch", "processing_status": "ended",
    "request_counts": dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0),
    "created_at": "2026-01-01T00:00:00Z", "expires_at": "2026-01-02T00:00:00Z",
    "results_url": "https://elsewhere.test/v1/messages/batches/msgbatch_0123/results",
}  # fmt: skip
COMPLETION = {"id": "c", "object": "text_completion", "created": 1, "model": "m"}
CHOICE = {"index": 0, "text": "hi", "finish_reason": "stop", "logprobs": None}
IMAGES = {"created": 1, "data": [{"b64_json": "aGk="}], "usage": {"input_tokens": 5, "output_tokens": 7}}
CHAT = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": []}
CONVERSATION = {"id": "conv_123", "object": "conversation", "created_at": 1}
VIDEO = {"id": "video_123", "object": "video", "model": "m", "status": "queued"}
SKILL = {"id": "skill_123", "type": "skill", "created_at": "2026-01-01T00:00:00Z"}
RANKED = {
    "id": "r", "results": [{"index": 1, "relevance_score": 0.5}], "data": [{"index": 1, "relevance_score": 0.5}],
    "usage": {"total_tokens": 3}, "meta": {"billed_units": {"search_units": 1}},
}  # fmt: skip
EMBED = {
    "id": "e",
    "embeddings": {"float": [[1.0, 2.0]]},
    "texts": ["x"],
    "response_type": "embeddings_by_type",
}
CACHED = {"name": "cachedContents/abc123", "model": "models/real-name"}
DATASET = {
    "id": "ds",
    "dataset": {"id": "ds", "name": "d"},
    "datasets": [],
    "batch": {**BATCH, "id": "b-1"},
    "batches": [],
}


def _list(*items: Any) -> dict[str, Any]:
    return {"object": "list", "data": [*items], "has_more": False, "first_id": None, "last_id": None}


def _events(*events: dict[str, Any]) -> tuple[str, bytes]:
    frames = [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events]
    return "text/event-stream", "".join(frames).encode()


# Path -> its answer, as JSON or as bytes of a type.
ANSWERS: dict[str, Any] = {
    "/v1/embeddings": {**_list({"object": "embedding", "index": 0, "embedding": "AACAPwAAAEA="}), "model": "m", "usage": {"total_tokens": 1}},
    "/v1/completions": ("text/event-stream", f"data: {json.dumps({**COMPLETION, 'choices': [CHOICE]})}\n\ndata: [DONE]\n\n".encode()),
    "/v1/moderations": {"id": "modr-1", "model": "m", "results": []},
    "/v1/audio/speech": ("audio/mpeg", b"ID3" + bytes(50_000)),
    "/v1/audio/transcriptions": _events({"type": "transcript.text.delta", "delta": "hel"}, {"type": "transcript.text.done", "text": "hello"}),
    "/v1/audio/translations": {"text": "hello"},
    "/v1/images/generations": IMAGES,
    "/v1/images/edits": IMAGES,
    "/v1/images/variations": IMAGES,
    "/v1/files": {**FILE, **_list(FILE), "files": [{"name": "files/abc"}]},
    "/v1/files/file-abc123": {**FILE, "deleted": True},
    "/v1/files/file-abc123/content": ("application/octet-stream", b"content!"),
    "/v1/uploads": UPLOAD,
    "/v1/uploads/upload_123/parts": {"id": "part_123", "object": "upload.part", "created_at": 1, "upload_id": "upload_123"},
    "/v1/uploads/upload_123/complete": {**UPLOAD, "status": "completed"},
    "/v1/uploads/upload_123/cancel": {**UPLOAD, "status": "cancelled"},
    "/v1/batches": {**_list(BATCH), **BATCH},
    "/v1/batches/batch_123": BATCH,
    "/v1/batches/batch_123/cancel": {**BATCH, "status": "cancelling"},
    "/v1/conversations": CONVERSATION,
    "/v1/conversations/conv_123": {**CONVERSATION, "deleted": True},
    "/v1/conversations/conv_123/items": _list(),
    "/v1/videos": VIDEO,
    "/v1/videos/video_123/content": ("video/mp4", b"video!"),
    "/v1/chat/completions": _list(CHAT),
    "/v1/chat/completions/chatcmpl-1": {**CHAT, "deleted": True},
    "/v1/chat/completions/chatcmpl-1/messages": _list(),
    "/v1/messages/batches": {**MESSAGE_BATCH, **_list(MESSAGE_BATCH)},
    "/v1/messages/batches/msgbatch_0123": MESSAGE_BATCH,
    "/v1/messages/batches/msgbatch_0123/cancel": MESSAGE_BATCH,
    "/v1/messages/batches/msgbatch_0123/results": ("application/x-jsonl", b'{"custom_id":"a","result":{"type":"canceled"}}\n'),
    "/v1/skills": {**SKILL, **_list(SKILL)},
    "/v1/skills/skill_123": {**SKILL, "type": "skill_deleted"},
    "/v2/embed": EMBED,
    "/v1/embed": {**EMBED, "response_type": "embeddings_floats", "embeddings": [[1.0, 2.0]]},
    "/v2/rerank": RANKED,
    "/v1/rerank": RANKED,
    "/v1/classify": {"id": "c", "classifications": [{"id": "1", "prediction": "good", "predictions": ["good"], "confidence": 0.9, "confidences": [0.9], "labels": {}, "classification_type": "single-label"}]},
    "/v1/tokenize": {"tokens": [1, 2], "token_strings": ["a", "b"]},
    "/v1/detokenize": {"text": "ab"},
    "/v2/audio/transcriptions": {"text": "hello"},
    "/v2/parse": {"id": "p"},
    "/v2/batches": DATASET,
    "/v2/batches/b-1": DATASET,
    "/v2/batches/b-1:cancel": {},
    "/v1/datasets": DATASET,
    "/v1/datasets/ds": DATASET,
    "/v1/embed-jobs": {"job_id": "j"},
    "/v1/embed-jobs/j": {"job_id": "j", "status": "complete", "created_at": "2026-01-01T00:00:00Z", "input_dataset_id": "ds", "model": "m", "truncate": "END"},
    "/v1/embed-jobs/j/cancel": {},
    "/v1/models/real-name:batchEmbedContents": {"embeddings": [{"values": [1.0, 2.0]}]},
    "/v1/models/real-name:embedContent": {"embedding": {"values": [1.0, 2.0]}},
    "/v1/cachedContents": {**CACHED, "cachedContents": [CACHED]},
    "/v1/cachedContents/abc123": CACHED,
    "/v1/files/abc": {"name": "files/abc"},
    "/v1/multimodalembeddings": {**_list({"object": "embedding", "index": 0, "embedding": [1.0, 2.0]}), "usage": {"text_tokens": 1, "image_pixels": 0, "video_pixels": 0, "total_tokens": 1}},
    "/v1/contextualizedembeddings": {"object": "list", "data": [{"object": "list", "index": 0, "data": [{"object": "embedding", "index": 0, "embedding": [1.0, 2.0]}]}], "usage": {"total_tokens": 1}},
}  # fmt: skip

_PYTHON = """\
import json, os
url = os.environ["URL"]
def show(call):
    try:
        value = call()
    except Exception as error:
        value = f"{type(error).__name__}: {error}"
    print(json.dumps(value))
SETUP
"""


@dataclass(frozen=True)
class Sdk:
    """One SDK. package: as it is installed. setup: makes `client` for `url`. calls: see the module."""

    package: str
    setup: str
    calls: list[tuple[str, str, Any]]

    @property
    def program(self) -> str:
        """What makes the calls, and prints the value of each as a line of JSON."""
        calls = (f"show(lambda: {row[0]})" for row in self.calls)
        return "\n".join([_PYTHON.replace("SETUP", self.setup), *calls])

    @property
    def install(self) -> str:
        """The command that installs it."""
        return f"pip install --target .clients/python {self.package}"

    def is_installed(self, place: Path) -> bool:
        name = self.package.partition("==")[0]
        return any(True for _ in distributions(name=name, path=[str(place / "python"), *sys.path]))


# fmt: off
OPENAI: list[tuple[str, str, Any]] = [
    ('client.embeddings.create(model="alias", input="x").data[0].embedding', 'POST /v1/embeddings {"model": "real-name", "input": "x", "encoding_format": "base64"}', [1.0, 2.0]),
    ('[each.choices[0].text for each in client.completions.create(model="alias", prompt="x", stream=True)]', 'POST /v1/completions {"model": "real-name", "stream": true, "prompt": "x"}', ["hi"]),
    ('client.moderations.create(input="x").id', 'POST /v1/moderations {"input": "x"}', "modr-1"),
    ('client.images.generate(model="alias", prompt="x").data[0].b64_json', 'POST /v1/images/generations {"model": "real-name", "prompt": "x"}', "aGk="),
    ('client.images.edit(model="alias", image=[("a.png", bytes(2**21)), ("b.png", b"b")], mask=("m.png", b"m"), prompt="p").created', "POST /v1/images/edits prompt=p model=real-name image[]=a.png[2097152] image[]=b.png[1] mask=m.png[1]", 1),
    ('client.images.create_variation(model="alias", image=("a.png", b"a")).created', "POST /v1/images/variations model=real-name image=a.png[1]", 1),
    ('len(client.audio.speech.create(model="alias", input="x", voice="alloy").content)', 'POST /v1/audio/speech {"model": "real-name", "input": "x", "voice": "alloy"}', 50_003),
    ('[each.type for each in client.audio.transcriptions.create(model="alias", file=("a.mp3", b"ID3"), stream=True)]', "POST /v1/audio/transcriptions model=real-name stream=true file=a.mp3[3]", ["transcript.text.delta", "transcript.text.done"]),
    ('client.audio.translations.create(model="alias", file=("a.mp3", bytes(3 * 2**20))).text', "POST /v1/audio/translations model=real-name file=a.mp3[3145728]", "hello"),
    ('client.files.create(file=("f.jsonl", bytes(2**21)), purpose="batch").id', "POST /v1/files purpose=batch file=f.jsonl[2097152]", "file-abc123"),
    ("[each.id for each in client.files.list(purpose='batch')]", "GET /v1/files?purpose=batch", ["file-abc123"]),
    ('client.files.retrieve("file-abc123").id', "GET /v1/files/file-abc123", "file-abc123"),
    ('client.files.content("file-abc123").text', "GET /v1/files/file-abc123/content", "content!"),
    ('client.files.delete("file-abc123").deleted', "DELETE /v1/files/file-abc123", True),
    ('client.uploads.create(bytes=3, filename="f", mime_type="text/plain", purpose="batch").id', 'POST /v1/uploads {"bytes": 3, "filename": "f", "mime_type": "text/plain", "purpose": "batch"}', "upload_123"),
    ('client.uploads.parts.create("upload_123", data=b"abc").id', "POST /v1/uploads/upload_123/parts data=upload[3]", "part_123"),
    ('client.uploads.complete("upload_123", part_ids=["part_123"]).status', 'POST /v1/uploads/upload_123/complete {"part_ids": ["part_123"]}', "completed"),
    ('client.uploads.cancel("upload_123").status', "POST /v1/uploads/upload_123/cancel", "cancelled"),
    ('client.batches.create(input_file_id="file-abc123", endpoint="/v1/embeddings", completion_window="24h").id', 'POST /v1/batches {"completion_window": "24h", "endpoint": "/v1/embeddings", "input_file_id": "file-abc123"}', "batch_123"),
    ("[each.id for each in client.batches.list()]", "GET /v1/batches", ["batch_123"]),
    ('client.batches.retrieve("batch_123").status', "GET /v1/batches/batch_123", "validating"),
    ('client.batches.cancel("batch_123").status', "POST /v1/batches/batch_123/cancel", "cancelling"),
    ("client.conversations.create(metadata={'a': 'b'}).id", 'POST /v1/conversations {"metadata": {"a": "b"}}', "conv_123"),
    ('client.conversations.update("conv_123", metadata={}).id', 'POST /v1/conversations/conv_123 {"metadata": {}}', "conv_123"),
    ('[*client.conversations.items.list("conv_123")]', "GET /v1/conversations/conv_123/items", []),
    ('client.conversations.delete("conv_123").deleted', "DELETE /v1/conversations/conv_123", True),
    ("[each.id for each in client.chat.completions.list()]", "GET /v1/chat/completions", ["chatcmpl-1"]),
    ('client.chat.completions.retrieve("chatcmpl-1").id', "GET /v1/chat/completions/chatcmpl-1", "chatcmpl-1"),
    ('client.chat.completions.update("chatcmpl-1", metadata={}).id', 'POST /v1/chat/completions/chatcmpl-1 {"metadata": {}}', "chatcmpl-1"),
    ('[*client.chat.completions.messages.list("chatcmpl-1")]', "GET /v1/chat/completions/chatcmpl-1/messages", []),
    ('client.chat.completions.delete("chatcmpl-1").deleted', "DELETE /v1/chat/completions/chatcmpl-1", True),
    ('client.videos.create(prompt="x").id', "POST /v1/videos prompt=x", "video_123"),
    ('client.videos.download_content("video_123").text', "GET /v1/videos/video_123/content", "video!"),
    ("client.vector_stores.create()", "", 'NotFoundError: Error code: 404 - the request names no model, and no upstream is set for /v1/vector_stores: add to dragoman.toml, below [endpoints]: "/v1/vector_stores" = "up"'),
    ("client.realtime.client_secrets.create()", "", "NotFoundError: Error code: 404 - Realtime sessions are not served by this gateway: connect to the vendor for them"),
]
ANTHROPIC: list[tuple[str, str, Any]] = [
    ('client.messages.batches.create(requests=[{"custom_id": "a", "params": {"model": "opus", "max_tokens": 9, "messages": []}}]).id', 'POST /v1/messages/batches {"requests": [{"custom_id": "a", "params": {"model": "claude-opus-5", "max_tokens": 9, "messages": []}}]}', "msgbatch_0123"),
    ('client.messages.batches.retrieve("msgbatch_0123").processing_status', "GET /v1/messages/batches/msgbatch_0123", "ended"),
    ("[each.id for each in client.messages.batches.list()]", "GET /v1/messages/batches", ["msgbatch_0123"]),
    ('client.messages.batches.cancel("msgbatch_0123").id', "POST /v1/messages/batches/msgbatch_0123/cancel", "msgbatch_0123"),
    ('[each.custom_id for each in client.messages.batches.results("msgbatch_0123")]', "GET /v1/messages/batches/msgbatch_0123\nGET /v1/messages/batches/msgbatch_0123/results", ["a"]),
    ('client.messages.batches.delete("msgbatch_0123").id', "DELETE /v1/messages/batches/msgbatch_0123", "msgbatch_0123"),
    ('client.beta.messages.batches.create(requests=[{"custom_id": "a", "params": {"model": "opus", "max_tokens": 9, "messages": []}}]).id', 'POST /v1/messages/batches {"requests": [{"custom_id": "a", "params": {"model": "claude-opus-5", "max_tokens": 9, "messages": []}}]}', "msgbatch_0123"),
    ('client.files.upload(file=("f.txt", bytes(2**21))).id', "POST /v1/files file=f.txt[2097152]", "file-abc123"),
    ('client.beta.files.upload(file=("f.txt", b"abc")).id', "POST /v1/files file=f.txt[3]", "file-abc123"),
    ("[each.id for each in client.files.list()]", "GET /v1/files", ["file-abc123"]),
    ('client.files.retrieve_metadata("file-abc123").id', "GET /v1/files/file-abc123", "file-abc123"),
    ('client.files.download("file-abc123").text()', "GET /v1/files/file-abc123/content", "content!"),
    ('client.files.delete("file-abc123").id', "DELETE /v1/files/file-abc123", "file-abc123"),
    ('client.skills.create(files=[("s/SKILL.md", b"abc")]).id', "POST /v1/skills files[]=s/SKILL.md[3]", "skill_123"),
    ("[each.id for each in client.skills.list()]", "GET /v1/skills", ["skill_123"]),
    ('client.skills.delete("skill_123").id', "DELETE /v1/skills/skill_123", "skill_123"),
]
COHERE: list[tuple[str, str, Any]] = [
    ('v2.embed(model="alias", input_type="search_document", texts=["x"], embedding_types=["float"]).embeddings.float_', 'POST /v2/embed {"texts": ["x"], "model": "real-name", "input_type": "search_document", "embedding_types": ["float"]}', [[1.0, 2.0]]),
    ('v1.embed(model="alias", texts=["x"], input_type="search_document").embeddings', 'POST /v1/embed {"texts": ["x"], "model": "real-name", "input_type": "search_document"}', [[1.0, 2.0]]),
    ('v2.rerank(model="alias", query="q", documents=["a", "b"], top_n=1).results[0].relevance_score', 'POST /v2/rerank {"model": "real-name", "query": "q", "documents": ["a", "b"], "top_n": 1}', 0.5),
    ('v1.rerank(model="alias", query="q", documents=["a", "b"]).results[0].index', 'POST /v1/rerank {"model": "real-name", "query": "q", "documents": ["a", "b"]}', 1),
    ('v1.classify(model="alias", inputs=["x"]).classifications[0].prediction', 'POST /v1/classify {"inputs": ["x"], "model": "real-name"}', "good"),
    ('v1.tokenize(model="alias", text="ab", offline=False).tokens', 'POST /v1/tokenize {"text": "ab", "model": "real-name"}', [1, 2]),
    ('v1.detokenize(model="alias", tokens=[1, 2], offline=False).text', 'POST /v1/detokenize {"tokens": [1, 2], "model": "real-name"}', "ab"),
    ('v2.audio.transcriptions.create(model="alias", language="en", file=("a.mp3", bytes(2**20))).text', "POST /v2/audio/transcriptions model=real-name language=en file=a.mp3[1048576]", "hello"),
    ('v2.parse(model="alias", document={"type": "image_url", "image_url": {"url": "data:,"}}).id', 'POST /v2/parse {"model": "real-name", "document": {"type": "image_url", "image_url": {"url": "data:,"}}}', "p"),
    ('v1.datasets.create(name="d", type="embed-input", data=("d.jsonl", b"{}")).id', "POST /v1/datasets?name=d&type=embed-input data=d.jsonl[2]", "ds"),
    ('v1.datasets.get("ds").dataset.name', "GET /v1/datasets/ds", "d"),
    ('v1.embed_jobs.create(model="m", dataset_id="ds", input_type="search_document").job_id', 'POST /v1/embed-jobs {"model": "m", "dataset_id": "ds", "input_type": "search_document"}', "j"),
    ('v1.embed_jobs.get("j").status', "GET /v1/embed-jobs/j", "complete"),
    ('v2.batches.create(request={"name": "b", "input_dataset_id": "ds", "model": "m"}).batch.id', 'POST /v2/batches {"name": "b", "input_dataset_id": "ds", "model": "m"}', "b-1"),
    ('v2.batches.retrieve("b-1").batch.name', "GET /v2/batches/b-1", "b"),
    ('v2.batches.cancel("b-1") is not None', "POST /v2/batches/b-1:cancel", True),
]
VOYAGE: list[tuple[str, str, Any]] = [
    ('client.embed(["x"], model="alias").embeddings', 'POST /v1/embeddings {"input": ["x"], "model": "real-name", "input_type": null, "truncation": true, "output_dtype": null, "output_dimension": null, "encoding_format": "base64"}', [[1.0, 2.0]]),
    ('client.rerank("q", ["a", "b"], model="alias").results[0].relevance_score', 'POST /v1/rerank {"query": "q", "documents": ["a", "b"], "model": "real-name", "top_k": null, "truncation": true}', 0.5),
    ('client.contextualized_embed([["x"]], model="alias").results[0].embeddings', 'POST /v1/contextualizedembeddings {"inputs": [["x"]], "model": "real-name", "input_type": null, "output_dtype": null, "output_dimension": null, "encoding_format": "base64"}', [[1.0, 2.0]]),
    ('client.multimodal_embed([["x"]], model="alias").embeddings', 'POST /v1/multimodalembeddings {"inputs": [{"content": [{"type": "text", "text": "x"}]}], "model": "real-name", "input_type": null, "truncation": true, "output_dtype": null, "output_dimension": null, "encoding_format": "base64"}', [[1.0, 2.0]]),
]
GOOGLE: list[tuple[str, str, Any]] = [
    ('client.models.embed_content(model="g", contents="x").embeddings[0].values', 'POST /v1/models/real-name:batchEmbedContents {"requests": [{"content": {"parts": [{"text": "x"}], "role": "user"}, "model": "models/real-name"}]}', [1.0, 2.0]),
    ('client.caches.create(model="g", config={"ttl": "60s", "contents": ["x"]}).name', 'POST /v1/cachedContents {"model": "models/real-name", "ttl": "60s", "contents": [{"parts": [{"text": "x"}], "role": "user"}]}', "cachedContents/abc123"),
    ('client.caches.get(name="cachedContents/abc123").name', "GET /v1/cachedContents/abc123", "cachedContents/abc123"),
    ('client.caches.update(name="cachedContents/abc123", config={"ttl": "90s"}).name', 'PATCH /v1/cachedContents/abc123 {"ttl": "90s"}', "cachedContents/abc123"),
    ("[each.name for each in client.caches.list()]", "GET /v1/cachedContents", ["cachedContents/abc123"]),
    ('client.caches.delete(name="cachedContents/abc123") is not None', "DELETE /v1/cachedContents/abc123", True),
    ('client.files.get(name="files/abc").name', "GET /v1/files/abc", "files/abc"),
    ("[each.name for each in client.files.list()]", "GET /v1/files", ["files/abc"]),
]
# fmt: on

SDKS = {
    "openai": Sdk("openai", 'import openai\nclient = openai.OpenAI(base_url=url + "/v1", api_key="x", max_retries=0)', OPENAI),
    "anthropic": Sdk("anthropic", 'import anthropic\nclient = anthropic.Anthropic(base_url=url, api_key="x", max_retries=0)', ANTHROPIC),
    "cohere": Sdk("cohere==7.3.1", 'import cohere\nv1, v2 = cohere.Client("x", base_url=url), cohere.ClientV2("x", base_url=url)', COHERE),
    "voyage": Sdk("voyageai==0.5.0", 'import voyageai\nclient = voyageai.Client("x", base_url=url + "/v1")', VOYAGE),
    "google": Sdk("google-genai==3.4.0", 'from google import genai\nclient = genai.Client(api_key="x", http_options={"base_url": url})', GOOGLE),
}  # fmt: skip
