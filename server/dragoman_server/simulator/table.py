"""Make the table of models in docs/simulator.md. `python -m dragoman_server.simulator.table` prints it."""

import sys

from dragoman_server.simulator.scripts import SIMULATED_MODELS


def markdown() -> str:
    """Return one row for each model: name, what it does, what a number after @ sets, and its default."""
    lines = ["| model | what it does | `@` number | default |", "|---|---|---|---|"]
    for model in SIMULATED_MODELS.values():
        setting, default = "", ""
        if model.setting is not None:
            setting = model.setting.value
            default = f"{model.default:g}" if model.default else "no delay"
        lines.append(f"| `{model.name}` | {model.description} | {setting} | {default} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown())
