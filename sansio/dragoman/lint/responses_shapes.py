"""The shapes of the Responses protocol's documents and events.

What a response repeats of its request (tools, tool_choice, instructions, text, reasoning) is checked only in the
members that clients read. cache_write_tokens is required since 2026; a recording of March 2025 has no sequence_number.
"""

from __future__ import annotations

from dragoman.lint.shapes import Shapes

# Not in the documents, but sent by the vendor's server: frequency_penalty, presence_penalty, store, billing and
# content_filters of a response, `error` in an error event, and web searches that are added without their action.
SHAPES = Shapes("""
Event = Lifecycle | Error | ItemEvent | PartEvent | TextDelta | TextDone | RefusalDelta | RefusalDone | AnnotationAdded | ReasoningTextDelta | ReasoningTextDone | SummaryPart | SummaryDelta | SummaryDone | CallDelta | ArgumentsDone | InputDone | CodeDone | Progress | PartialImage | Audio | ShellCommand | ShellOutput
Lifecycle: type "response.created" "response.in_progress" "response.queued" "response.completed" "response.incomplete" "response.failed", sequence_number~ int, response Response
Error: type "error", sequence_number~ int, code str?, message str, param str?, error? ErrorObject
ErrorObject: type? str, code? str, message str, param? str
ItemEvent: type "response.output_item.added" "response.output_item.done", sequence_number~ int, output_index int, item Item
PartEvent: type "response.content_part.added" "response.content_part.done", sequence_number~ int, item_id str, output_index int, content_index int, part Part
TextDelta: type "response.output_text.delta", sequence_number~ int, item_id str, output_index int, content_index int, delta str, logprobs~ [EventLogprob], obfuscation? str
TextDone: type "response.output_text.done", sequence_number~ int, item_id str, output_index int, content_index int, text str, logprobs~ [EventLogprob]
RefusalDelta: type "response.refusal.delta", sequence_number~ int, item_id str, output_index int, content_index int, delta str, obfuscation? str
RefusalDone: type "response.refusal.done", sequence_number~ int, item_id str, output_index int, content_index int, refusal str
AnnotationAdded: type "response.output_text.annotation.added", sequence_number~ int, item_id str, output_index int, content_index int, annotation_index int, annotation Annotation?
ReasoningTextDelta: type "response.reasoning_text.delta", sequence_number~ int, item_id str, output_index int, content_index int, delta str, obfuscation? str
ReasoningTextDone: type "response.reasoning_text.done", sequence_number~ int, item_id str, output_index int, content_index int, text str
SummaryPart: type "response.reasoning_summary_part.added" "response.reasoning_summary_part.done", sequence_number~ int, item_id str, output_index int, summary_index int, part Summary, status? str
SummaryDelta: type "response.reasoning_summary_text.delta", sequence_number~ int, item_id str, output_index int, summary_index int, delta str, obfuscation? str
SummaryDone: type "response.reasoning_summary_text.done", sequence_number~ int, item_id str, output_index int, summary_index int, text str
CallDelta: type "response.function_call_arguments.delta" "response.custom_tool_call_input.delta" "response.mcp_call_arguments.delta" "response.code_interpreter_call_code.delta", sequence_number~ int, item_id str, output_index int, delta str, obfuscation? str
ArgumentsDone: type "response.function_call_arguments.done" "response.mcp_call_arguments.done", sequence_number~ int, item_id str, output_index int, arguments str, name? str
InputDone: type "response.custom_tool_call_input.done", sequence_number~ int, item_id str, output_index int, input str
CodeDone: type "response.code_interpreter_call_code.done", sequence_number~ int, item_id str, output_index int, code str
Progress: type "response.code_interpreter_call.completed" "response.code_interpreter_call.in_progress" "response.code_interpreter_call.interpreting" "response.file_search_call.completed" "response.file_search_call.in_progress" "response.file_search_call.searching" "response.image_generation_call.completed" "response.image_generation_call.generating" "response.image_generation_call.in_progress" "response.mcp_call.completed" "response.mcp_call.failed" "response.mcp_call.in_progress" "response.mcp_list_tools.completed" "response.mcp_list_tools.failed" "response.mcp_list_tools.in_progress" "response.web_search_call.completed" "response.web_search_call.in_progress" "response.web_search_call.searching" "response.compaction.compacting", sequence_number~ int, item_id str, output_index int
PartialImage: type "response.image_generation_call.partial_image", sequence_number~ int, item_id str, output_index int, partial_image_b64 str, partial_image_index int, background? str, output_format? str, quality? str, size? str
Audio: type "response.audio.delta" "response.audio.done" "response.audio.transcript.delta" "response.audio.transcript.done", sequence_number~ int, delta? str
ShellCommand: type "response.shell_call_command.added" "response.shell_call_command.delta" "response.shell_call_command.done", sequence_number~ int, output_index int, command_index int, command? str, delta? str, obfuscation? str
ShellOutput: type "response.shell_call_output_content.delta" "response.shell_call_output_content.done", sequence_number~ int, item_id str, output_index int, command_index int, delta? obj, output? [obj]
Response: id str, access_programs obj?, created_at num, error ResponseError?, incomplete_details IncompleteDetails?, instructions str | [any]?, metadata obj?, model str, object~ "response", output [Item], parallel_tool_calls~ bool, temperature num?, tool_choice~ str | obj, tools~ [Tool], top_p num?, background? bool, completed_at? num, conversation? obj, image? obj, input_transformations? [obj], max_output_tokens? int, max_tool_calls? int, moderation? obj, previous_response_id? str, prompt? obj, prompt_cache_diagnostics? obj, prompt_cache_key? str, prompt_cache_options? obj, prompt_cache_retention? "in_memory" "24h", reasoning? obj, safety_identifier? str, service_tier? "auto" "default" "flex" "scale" "priority" "fast" "ultrafast", status? "completed" "failed" "in_progress" "cancelled" "queued" "incomplete", text? obj, tool_usage? obj, top_logprobs? int, truncation? "auto" "disabled", usage? Usage, user? str, store? bool, frequency_penalty? num, presence_penalty? num, billing? obj, content_filters? any
ResponseError: code "server_error" "rate_limit_exceeded" "invalid_prompt" "data_residency_mismatch" "bio_policy" "misalignment_policy_violation" "vector_store_timeout" "invalid_image" "invalid_image_format" "invalid_base64_image" "invalid_image_url" "image_too_large" "image_too_small" "image_parse_error" "image_content_policy_violation" "invalid_image_mode" "image_file_too_large" "unsupported_image_media_type" "empty_image_file" "failed_to_download_image" "image_file_not_found", message str, misalignment? obj, param? str, type? str
IncompleteDetails: reason? "max_output_tokens" "max_messages" "content_filter" "steered"
Tool = FunctionTool | OtherTool
FunctionTool: type "function", name str, parameters obj?, strict bool?, description? str, defer_loading? bool, async? bool, ...
OtherTool: type? str, ...
Usage: input_tokens int, input_tokens_details~ InputDetails, output_tokens int, output_tokens_details~ OutputDetails, total_tokens int
InputDetails: cache_write_tokens~ int, cached_tokens int, cache_write_tokens_details? obj
OutputDetails: reasoning_tokens int
Item = Message | FunctionCall | CustomCall | Reasoning | FunctionOutput | FileSearch | WebSearch | ComputerCall | ComputerOutput | Program | ProgramOutput | ToolSearchCall | ToolSearchOutput | AdditionalTools | Compaction | ImageCall | CodeCall | LocalShellCall | LocalShellOutput | ShellCall | ShellCallOutput | PatchCall | PatchOutput | MCPCall | MCPTools | MCPRequest | MCPResponse
Message: id str, type "message", content [Part], role "assistant", status "in_progress" "completed" "incomplete", phase? "commentary" "final_answer"
FunctionCall: type "function_call", arguments str, call_id str, name str, id? str, async? bool, caller? obj, namespace? str, status? "in_progress" "completed" "incomplete"
CustomCall: type "custom_tool_call", call_id str, input str, name str, id? str, async? bool, caller? obj, namespace? str, status? "in_progress" "completed" "incomplete"
Reasoning: id str, type "reasoning", summary [Summary], content? [ReasoningText], encrypted_content? str, status? "in_progress" "completed" "incomplete"
FunctionOutput: id str, type "function_call_output" "custom_tool_call_output", output str | [obj], status "in_progress" "completed" "incomplete", call_id? str, caller? obj, created_by? str, name? str, namespace? str
FileSearch: id str, type "file_search_call", queries [str], status "in_progress" "searching" "completed" "incomplete" "failed", results? [obj]
WebSearch: id str, type "web_search_call", action SearchAction?, status "in_progress" "searching" "completed" "failed" "incomplete"
SearchAction: type "search" "open_page" "find_in_page", query? str, queries? [str], sources? [obj], url? str, pattern? str
ComputerCall: id str, type "computer_call", call_id str, pending_safety_checks [obj], status "in_progress" "completed" "incomplete", action? obj, actions? [obj]
ComputerOutput: id str, type "computer_call_output", call_id str, output obj, status "completed" "incomplete" "failed" "in_progress", acknowledged_safety_checks? [obj], created_by? str
Program: id str, type "program", call_id str, code str, fingerprint str
ProgramOutput: id str, type "program_output", call_id str, result str, status "completed" "incomplete"
ToolSearchCall: id str, type "tool_search_call", arguments any, call_id str?, execution "server" "client", status "in_progress" "completed" "incomplete", created_by? str
ToolSearchOutput: id str, type "tool_search_output", call_id str?, execution "server" "client", status "in_progress" "completed" "incomplete", tools [obj], created_by? str
AdditionalTools: id str, type "additional_tools", role str, tools [obj]
Compaction: id str, type "compaction", encrypted_content str, created_by? str
ImageCall: id str, type "image_generation_call", result str?, status "in_progress" "completed" "generating" "failed", ...
CodeCall: id str, type "code_interpreter_call", code str?, container_id str, outputs [obj]?, status "in_progress" "completed" "incomplete" "interpreting" "failed"
LocalShellCall: id str, type "local_shell_call", action obj, call_id str, status "in_progress" "completed" "incomplete"
LocalShellOutput: id str, type "local_shell_call_output", output str, status? "in_progress" "completed" "incomplete"
ShellCall: id str, type "shell_call", action obj, call_id str, environment obj?, status "in_progress" "completed" "incomplete", caller? obj, created_by? str
ShellCallOutput: id str, type "shell_call_output", call_id str, max_output_length int?, output [obj], status "in_progress" "completed" "incomplete", caller? obj, created_by? str
PatchCall: id str, type "apply_patch_call", call_id str, operation obj, status "in_progress" "completed", caller? obj, created_by? str
PatchOutput: id str, type "apply_patch_call_output", call_id str, status "completed" "failed", caller? obj, created_by? str, output? str
MCPCall: id str, type "mcp_call", arguments str, name str, server_label str, approval_request_id? str, error? any, output? str, status? "in_progress" "completed" "incomplete" "calling" "failed"
MCPTools: id str, type "mcp_list_tools", server_label str, tools [obj], error? any
MCPRequest: id str, type "mcp_approval_request", arguments str, name str, server_label str
MCPResponse: id str, type "mcp_approval_response", approval_request_id str, approve bool, reason? str
Part = OutputText | RefusalPart | ReasoningText
OutputText: type "output_text", annotations~ [Annotation], text str, logprobs? [Logprob]
RefusalPart: type "refusal", refusal str
ReasoningText: type "reasoning_text", text str
Summary: type "summary_text", text str
Annotation = FileCitation | URLCitation | ContainerFileCitation | FilePath
FileCitation: type "file_citation", file_id str, filename str, index int
URLCitation: type "url_citation", url str, title str, start_index int, end_index int
ContainerFileCitation: type "container_file_citation", container_id str, file_id str, filename str, start_index int, end_index int
FilePath: type "file_path", file_id str, index int
Logprob: token str, bytes [int], logprob num, top_logprobs [TopLogprob]
TopLogprob: token str, bytes [int], logprob num
EventLogprob: token str, logprob num, ...
""")  # noqa: E501 -- each object is one line
