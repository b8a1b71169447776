"""Read a client's body into the neutral request.

Contents are read in `request_messages_in`, tools in `tools`; unknown fields stay in the objects they came in. The model
and whether the response is a stream are in the path. Each setting that is more than a name and a value has a function.
"""

from __future__ import annotations

from typing import Any

from dragoman._ir.losses import Loss
from dragoman._ir.request import Message, Param, ReasoningConfig, Request, ResponseFormat, Text
from dragoman._ir.shape import STRING, read_members
from dragoman._ir.wrapped_signatures import Signer
from dragoman._wire.json import JSON, JSONObject, text_or_none, wrong_type
from dragoman.protocols.gemini.checks import rename
from dragoman.protocols.gemini.request_messages_in import ConversationReader
from dragoman.protocols.gemini.schemas import json_schema
from dragoman.protocols.gemini.shapes import DEFINED_MEMBERS, REQUEST_SHAPE, SETTING_PATHS
from dragoman.protocols.gemini.tables import DYNAMIC_BUDGET, MIME_TYPE_JSON, MODALITIES, NAME, SERVICE_TIERS
from dragoman.protocols.gemini.tools import read_tool_choice, read_tools

_SETTINGS = "/generationConfig"
_THINKING = f"{_SETTINGS}/thinkingConfig"


# Settings with other values, and those of `generationConfig` that are no plain ones: few requests have them.
_CONVERTED = frozenset(("modalities", "service_tier", "stop"))
_SPECIAL = frozenset(("responseJsonSchema", "responseMimeType", "responseSchema", "thinkingConfig"))


def read_request(body: JSONObject, signer: Signer) -> Request:
    """Return the neutral request of a body, whose members get their names in lowerCamelCase.

    Raises RemoteProtocolError (400) with the path of the fault.
    """
    rename(body)
    settings, extra = read_members(body, REQUEST_SHAPE, wrong_type)
    config = body.get("generationConfig") or {}
    reader = ConversationReader(signer)
    messages: list[Message] = []
    system = body.get("systemInstruction")
    if type(system) is str:
        messages.append(Message("system", (Text(system, path="/systemInstruction"),), "/systemInstruction"))
    elif system is not None and system != {}:
        content = {**system, "role": "system"} if type(system) is dict else system
        messages.append(reader.content(content, "/systemInstruction", ("/systemInstruction/parts/0",)))
    messages += reader.read(body.get("contents"))
    repairs = reader.repairs
    fields: dict[str, Any] = {}
    if "tools" in body or "toolConfig" in body:
        choice, tools = read_tool_choice(body, read_tools(body, repairs))
        fields = {"tools": tuple(tools), "tool_choice": choice}
    if not _CONVERTED.isdisjoint(settings):
        _convert_settings(settings)
    if not _SPECIAL.isdisjoint(config):
        fields["reasoning"] = _read_reasoning(config.get("thinkingConfig") or {})
        fields["response_format"] = _read_response_format(config, extra, repairs)
    return Request(
        protocol=NAME,
        model=(body.get("model") or "").removeprefix("models/"),
        messages=tuple(messages),
        params=settings,
        param_paths=SETTING_PATHS,
        extra=extra or None,
        repairs=tuple(repairs),
        defined=DEFINED_MEMBERS,
        **fields,
    )


def _convert_settings(settings: dict[Param, JSON]) -> None:
    """Translate values that are other ones in the neutral request."""
    for index, text in enumerate(settings.get("stop", ())):
        if type(text) is not str:
            raise wrong_type(f"{_SETTINGS}/stopSequences/{index}", STRING.name, text)
    modalities = settings.get("modalities")
    if modalities is not None:
        settings["modalities"] = [each.lower() if each in MODALITIES else each for each in modalities]
        if modalities in ([], ["MODALITY_UNSPECIFIED"]):
            del settings["modalities"]
    tier = settings.get("service_tier")
    if tier is not None:
        settings["service_tier"] = SERVICE_TIERS.get(tier.lower(), tier)
        if tier.lower() == "unspecified":
            del settings["service_tier"]


def _read_reasoning(config: JSONObject) -> ReasoningConfig | None:
    level, budget = config.get("thinkingLevel"), config.get("thinkingBudget")
    shown = config.get("includeThoughts")
    if level == "THINKING_LEVEL_UNSPECIFIED":
        level = None
    if level is None and budget is None and shown is None:
        return None
    effort = None if level is None else level.lower()
    mode: JSON = None
    if budget is not None and effort is None:
        mode = "disabled" if budget == 0 else "adaptive" if budget == DYNAMIC_BUDGET else "enabled"
    return ReasoningConfig(
        mode,
        effort,
        budget if budget is not None and budget > 0 else None,
        None if shown is None else "summarized" if shown else "omitted",
        path=_THINKING,
        effort_path="" if effort is None else f"{_THINKING}/thinkingLevel",
        display_path="" if shown is None else f"{_THINKING}/includeThoughts",
    )


def _read_response_format(
    config: JSONObject, extra: JSONObject, repairs: list[Loss]
) -> ResponseFormat | None:
    """Return the schema of the response, in either of its dialects."""
    mime_type = text_or_none(config.get("responseMimeType"))
    name = "responseJsonSchema" if config.get("responseJsonSchema") is not None else "responseSchema"
    schema = config.get(name)
    if name != "responseSchema" and config.get("responseSchema") is not None:
        extra.setdefault("generationConfig", {})["responseSchema"] = config["responseSchema"]
    if mime_type not in (None, "text/plain", MIME_TYPE_JSON):
        extra.setdefault("generationConfig", {}).update({"responseMimeType": mime_type, name: schema})
        return None
    path = f"{_SETTINGS}/{name}"
    if schema is None:
        return ResponseFormat(path=f"{_SETTINGS}/responseMimeType") if mime_type == MIME_TYPE_JSON else None
    return ResponseFormat(json_schema(schema, path, repairs), path=path, schema_member="")
