"""The table of the endpoints that are relayed: one row says everything that is special about a path.

Sources: openai-python 3.54.0, anthropic-python 2.12.0 and google-genai 3.4.0 (paths and bodies), vLLM's and SGLang's
servers, Cohere's, Voyage's, Jina's and Mistral's references. Read 2026-11-23.
"""

import re
from collections.abc import Mapping
from enum import Enum
from functools import cache, partial
from typing import Any

import msgspec

from dragoman.codec import ProtocolSpec

JSON = "application/json"
FORM = "multipart/form-data"
SSE = "text/event-stream"
JSONL = "application/x-jsonl"
# Bytes of any type.
ANY = "application/octet-stream"

# Vendors, as ProtocolSpec.model_list_form names them.
OPENAI = ("openai",)
ANTHROPIC = ("anthropic",)
GOOGLE = ("google",)

_MIB = 2**20
# What a form has around its files.
_FIELDS = _MIB

# Methods of requests with a body.
SENDING = ("POST", "PATCH")

# At the end of a path: it has any number of segments more, or none.
BELOW = "/{below}"

# What a segment of a path may be: it leads nowhere else, and needs no quotes.
_SEGMENT = r"(?!\.{1,2}(?:/|$))[A-Za-z0-9._~:@=-]{1,256}"
# What else there may be in the place of a name. That of a model is quoted before it is sent. The id of a stored chat is
# not `batch`: at /v1/chat/completions/batch of vLLM requests have models.
_PLACES = {"model": ".+", "chat": "chatcmpl-[A-Za-z0-9_-]{1,256}"}


class Cost(Enum):
    """Where it is said what a request costs."""

    ANSWER = "answer"
    LATER = "in what follows from it"
    NONE = "nothing"


class ModelPlace(Enum):
    """Where a request names the model that decides where it goes."""

    BODY = "`model`"
    REQUESTS = "`params.model` of each request"
    PATH = "the path"
    RESOURCE = "`model`, as `models/...`"
    ID = "none, but an id"
    NONE = "none, see `[endpoints]`"


# For these a body is read whole, as JSON unless it is a form.
READ_AS_JSON = (ModelPlace.BODY, ModelPlace.REQUESTS, ModelPlace.PATH, ModelPlace.RESOURCE)


class RelayedPath(msgspec.Struct, frozen=True, kw_only=True):
    """One row.

    Attributes:
        paths: Under which it is served. `{id}` stands for one segment, names in _PLACES for what is there, BELOW at
            the end for all that follow.
        does: What it does, for people.
        vendors: Whose vendors the upstreams speak that may have it; the clients of the first one send it.
        needs_model: A request without a model is an error, unless `[endpoints]` has its path.
        cost: Where it is said. A client key with a budget may send nothing whose cost is not known from the answer.
        requests, answers: Media types of bodies.
        max_bytes: Of a request's body, None for `max_body_bytes`.
        is_slow: The first byte may take minutes, whatever `read_s` is.
        is_repeatable: After a request that got no response it may be sent again, although it may have been carried out.
        has_ids: Its answers have ids that only the account knows which made them.
        url_member: A member of its answers that is a URL of theirs. It gets the path only, so that it leads back here.
        is_text: Its answers are texts of a model, whose tokens are estimated by their bytes if they report no usage.
        ends: One of them is near the end of every complete stream.
        words: A model with one of these in its name is probably for this.
    """

    paths: tuple[str, ...]
    does: str
    methods: tuple[str, ...] = ("POST",)
    vendors: tuple[str, ...] = OPENAI
    model: ModelPlace = ModelPlace.BODY
    needs_model: bool = True
    cost: Cost = Cost.ANSWER
    requests: tuple[str, ...] = (JSON,)
    answers: tuple[str, ...] = (JSON,)
    max_bytes: int | None = None
    is_slow: bool = False
    is_repeatable: bool = True
    has_ids: bool = False
    url_member: str = ""
    is_text: bool = False
    ends: tuple[bytes, ...] = ()
    words: tuple[str, ...] = ()

    def may_be_at(self, spec: ProtocolSpec) -> bool:
        """True if upstreams that speak a protocol may have it."""
        return spec.model_list_form in self.vendors

    def shows_cost(self, *, has_model: bool) -> bool:
        """True if it becomes known what a request has cost that sends something. has_model: it names a model."""
        return self.cost is Cost.NONE or (self.cost is Cost.ANSWER and has_model)


_RELATIVE = ("/v1/{}", "/{}")
# google-genai sends v1 from 3.0 on, and v1beta before.
_GOOGLES = ("/v1beta/{}", "/v1/{}")


def _paths(name: str, forms: tuple[str, ...] = _RELATIVE) -> tuple[str, ...]:
    """Return the paths of an endpoint, by default with and without a version."""
    return tuple(path.format(name) for path in forms)


# What costs as much each time that it is made, and takes long.
_made = partial(RelayedPath, is_slow=True, is_repeatable=False)

TABLE: tuple[RelayedPath, ...] = (
    RelayedPath(paths=("/v1/embeddings",), does="Embed texts", words=("embed",)),
    RelayedPath(paths=("/v2/embed", "/v1/embed"), does="Embed texts (Cohere)"),
    RelayedPath(
        paths=("/v1/multimodalembeddings", "/v1/contextualizedembeddings"), does="Embed texts (Voyage)"
    ),
    RelayedPath(
        paths=(
            *_paths("models/{model}:embedContent", _GOOGLES),
            *_paths("models/{model}:batchEmbedContents", _GOOGLES),
        ),
        does="Embed texts (Google)",
        vendors=GOOGLE,
        model=ModelPlace.PATH,
    ),
    _made(
        paths=_paths("models/{model}:predict", _GOOGLES),
        does="Generate images (Google)",
        vendors=GOOGLE,
        model=ModelPlace.PATH,
    ),
    RelayedPath(
        paths=("/v1/completions", "/v1/fim/completions"),
        does="Complete a text",
        answers=(JSON, SSE),
        is_text=True,
        ends=(b"[DONE]",),
    ),
    RelayedPath(
        paths=("/v1/moderations",),
        does="Classify harmful texts",
        needs_model=False,
        cost=Cost.NONE,
        words=("moderation",),
    ),
    RelayedPath(paths=("/v1/decisions",), does="Decide questions about a text"),
    RelayedPath(
        paths=("/v1/rerank", "/v2/rerank", "/rerank"), does="Order documents by a query", words=("rerank",)
    ),
    *(
        RelayedPath(paths=_paths(name), does=does)
        for name, does in (
            ("score", "Score pairs of texts"),
            ("classify", "Classify texts"),
            ("pooling", "Return the pooled states of a model"),
            ("tokenize", "Return the tokens of a text"),
            ("detokenize", "Return the text of tokens"),
        )
    ),
    RelayedPath(paths=("/v1/ocr", "/v2/parse"), does="Read the text in a document"),
    _made(
        paths=("/v1/images/generations",),
        does="Generate images",
        needs_model=False,
        answers=(JSON, SSE),
        ends=(b"image_generation.completed", b"[DONE]"),
        words=("dall-e", "image"),
    ),
    _made(
        paths=("/v1/audio/speech",),
        does="Speak a text",
        answers=(ANY, SSE),
        ends=(b"speech.audio.done", b"[DONE]"),
        words=("tts",),
    ),
    *(
        _made(
            paths=paths,
            does=does,
            requests=(FORM,),
            answers=(JSON, "text/plain", SSE),
            max_bytes=25 * _MIB + _FIELDS,
            ends=(b"transcript.text.done", b"[DONE]"),
            words=words,
        )
        for paths, does, words in (
            (
                ("/v1/audio/transcriptions", "/v2/audio/transcriptions"),
                "Transcribe speech",
                ("whisper", "transcribe"),
            ),
            (("/v1/audio/translations",), "Translate speech into English", ("whisper",)),
        )
    ),
    *(
        _made(
            paths=(f"/v1/images/{name}",),
            does=does,
            needs_model=False,
            requests=requests,
            answers=(JSON, SSE),
            max_bytes=50 * _MIB + _FIELDS,
            ends=(b"image_edit.completed", b"[DONE]"),
            words=("dall-e", "image"),
        )
        for name, does, requests in (
            ("edits", "Edit images", (FORM, JSON)),
            ("variations", "Make variations of an image", (FORM,)),
        )
    ),
)

_READS = ("GET",)
_ALL = ("GET", "POST", "DELETE")


def _by_id(
    does: str,
    *paths: str,
    methods: tuple[str, ...] = _READS,
    vendors: tuple[str, ...] = OPENAI,
    model: ModelPlace = ModelPlace.NONE,
    cost: Cost = Cost.NONE,
    **more: Any,
) -> RelayedPath:
    """Return the row of paths whose requests name no model, and whose ids belong to one account."""
    more = {"needs_model": False, "has_ids": True, **more}
    return RelayedPath(
        paths=paths, does=does, methods=methods, vendors=vendors, model=model, cost=cost, **more
    )


TABLE += (
    *(
        row
        for vendors, place, forms in (
            (OPENAI, ModelPlace.NONE, ("/v1/{}",)),
            (ANTHROPIC, ModelPlace.NONE, ("/v1/{}",)),
            (GOOGLE, ModelPlace.ID, _GOOGLES),
        )
        for row in (
            _by_id(
                "List files, or upload one",
                *_paths("files", forms),
                methods=("GET", "POST"),
                vendors=vendors,
                model=place,
                requests=(FORM,),
                max_bytes=512 * _MIB + _FIELDS,
            ),
            _by_id(
                "Return or delete a file",
                *_paths("files/{id}", forms),
                methods=("GET", "DELETE"),
                vendors=vendors,
                model=place,
            ),
            _by_id(
                "Return the content of a file",
                *_paths("files/{id}/content", forms),
                vendors=vendors,
                model=place,
                answers=(ANY,),
            ),
        )
    ),
    _by_id("Upload a file in parts", "/v1/uploads", methods=("POST",)),
    _by_id(
        "Add a part to an upload",
        "/v1/uploads/{id}/parts",
        methods=("POST",),
        requests=(FORM,),
        max_bytes=64 * _MIB + _FIELDS,
    ),
    _by_id(
        "Complete or cancel an upload",
        "/v1/uploads/{id}/complete",
        "/v1/uploads/{id}/cancel",
        methods=("POST",),
    ),
    _by_id("List batches", "/v1/batches"),
    _by_id("Make a batch of the requests in a file", "/v1/batches", methods=("POST",), cost=Cost.LATER),
    _by_id("Return a batch", "/v1/batches/{id}"),
    _by_id("Cancel a batch", "/v1/batches/{id}/cancel", methods=("POST",)),
    _by_id(
        "Make a batch of requests",
        "/v1/messages/batches",
        methods=("POST",),
        vendors=ANTHROPIC,
        model=ModelPlace.REQUESTS,
        cost=Cost.LATER,
        url_member="results_url",
    ),
    *(
        _by_id(
            does,
            f"/v1/messages/batches{path}",
            methods=methods,
            vendors=ANTHROPIC,
            model=ModelPlace.ID,
            answers=(answer,),
            url_member="results_url",
        )
        for does, path, methods, answer in (
            ("List batches", "", _READS, JSON),
            ("Return or delete a batch", "/{id}", ("GET", "DELETE"), JSON),
            ("Cancel a batch", "/{id}/cancel", ("POST",), JSON),
            ("Return the results of a batch", "/{id}/results", _READS, JSONL),
        )
    ),
    _by_id(
        "Cache a prompt (Google)",
        *_paths("cachedContents", _GOOGLES),
        methods=("POST",),
        vendors=GOOGLE,
        model=ModelPlace.RESOURCE,
        cost=Cost.LATER,
    ),
    *(
        _by_id(
            does,
            *_paths(path, _GOOGLES),
            methods=methods,
            vendors=GOOGLE,
            model=ModelPlace.ID,
            cost=Cost.LATER,  # it may be kept longer
        )
        for does, path, methods in (
            ("List cached prompts (Google)", "cachedContents", _READS),
            (
                "Return, change or delete a cached prompt (Google)",
                "cachedContents/{id}",
                ("GET", "PATCH", "DELETE"),
            ),
        )
    ),
    _by_id("Make, change and read conversations", f"/v1/conversations{BELOW}", methods=_ALL),
    _by_id("List stored chats", "/v1/chat/completions"),
    _by_id("Return, change or delete a stored chat", "/v1/chat/completions/{chat}", methods=_ALL),
    _by_id("List the messages of a stored chat", "/v1/chat/completions/{chat}/messages"),
    *(
        _by_id(
            does,
            f"/{name}{BELOW}",
            methods=_ALL,
            vendors=vendors,
            cost=Cost.LATER,
            max_bytes=512 * _MIB,
        )
        for name, does, vendors in (
            ("v1/videos", "Make videos", OPENAI),
            ("v1/containers", "Keep containers", OPENAI),
            ("v1/vector_stores", "Keep and search vector stores", OPENAI),
            ("v1/fine_tuning", "Train models", OPENAI),
            ("v1/evals", "Evaluate models", OPENAI),
            ("v1/assistants", "Keep assistants", OPENAI),
            ("v1/threads", "Run assistants in threads", OPENAI),
            ("v1/skills", "Keep skills", (*ANTHROPIC, *OPENAI)),
            ("v1/datasets", "Keep sets of data (Cohere)", OPENAI),
            ("v1/embed-jobs", "Embed sets of data (Cohere)", OPENAI),
            ("v2/batches", "Make and read batches (Cohere)", OPENAI),
        )
    ),
)


@cache  # few of them are asked for
def _pattern(path: str) -> re.Pattern[str]:
    head, below, _ = path.partition(BELOW)
    text = re.sub(r"\\{(\w+)\\}", lambda place: _PLACES.get(place[1], _SEGMENT), re.escape(head))
    return re.compile(f"{text}(?:/{_SEGMENT})*" if below else text)


_PATHS = tuple(path for row in TABLE for path in row.paths)

# What a rule of `[endpoints]` may be for, and all that is below.
SERVED_PATHS = tuple(dict.fromkeys(path.partition("/{")[0] for path in _PATHS))


def leads_there(template: str, path: str) -> bool:
    """True if a path fits the template of a row, and can be sent to an upstream as it is."""
    return _pattern(template).fullmatch(path) is not None


def rows_at(method: str, path: str) -> list[tuple[RelayedPath, str]]:
    """Return the rows for a path, each with its own path that fits: one, or one for each vendor."""
    return [
        (row, template)
        for row in TABLE
        for template in row.paths
        if method in row.methods and leads_there(template, path)
    ]


def rule_for(rules: Mapping[str, tuple[str, ...]], path: str) -> tuple[str, ...]:
    """Return the upstreams that `[endpoints]` has for a path, by the longest rule that it is or is below."""
    while path and path not in rules:
        path = path.rpartition("/")[0]
    return rules.get(path, ())


def is_served(path: str) -> bool:
    """True if something is relayed at a path, or it is below one."""
    return path in SERVED_PATHS or any(leads_there(template, path) for template in _PATHS)


_SESSION = "{} sessions are not served by this gateway: connect to the vendor for them"
# What cannot be relayed as one request with a response: the paths, and all that is below.
_NOT_SERVED: Mapping[str, str] = {
    "/v1/realtime": _SESSION.format("Realtime"),
    "/v1/live": _SESSION.format("Live"),
    "/ws": _SESSION.format("Live"),
    # google-genai sends no key to the address at which an upload goes on.
    "/upload": "Google's resumable uploads are not served by this gateway: upload the file to Google with a key of the "
    "same project and name its URI here, or send it in the request as inlineData",
    "/model": "of Bedrock's operations with a model this gateway serves InvokeModel, with and without a stream, and "
    "CountTokens: a client of Converse has to use one of these, or another protocol",
    "/inference-profiles": "Bedrock's lists are not served by this gateway: GET /v1/models has the names of models",
}


def why_not_served(path: str) -> str | None:
    """Return why nothing is relayed at a path, None if there is no special reason."""
    for begin, reason in _NOT_SERVED.items():
        if path == begin or path.startswith(f"{begin}/"):
            return reason
    return None


def endpoints_for(model: str) -> tuple[str, ...]:
    """Return the paths that a model is for, judged by its name; none for one that chats, or is not known."""
    name = model.lower()
    return tuple(dict.fromkeys(row.paths[0] for row in TABLE if any(word in name for word in row.words)))
