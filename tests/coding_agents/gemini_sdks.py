"""A tool loop with streams in google-genai: python gemini_sdks.py MODULE URL MODEL."""

import sys
from importlib import import_module


def run_shell_command(command: str) -> str:
    """Run a command."""
    return "made by a tool"


module, url, model = sys.argv[1:]
client = import_module(module).Client(api_key="any", http_options={"base_url": url})
chat = client.chats.create(model=model, config={"tools": [run_shell_command]})
for chunk in chat.send_message_stream("Please run `echo made by a tool` for me."):
    print(chunk.text or "", end="")
