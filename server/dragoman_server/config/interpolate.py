"""`${NAME}` and `${file:PATH}` in the strings of a configuration file.

`$$` stands for one dollar sign, and any other dollar sign is an error: `"$KEY"`, the form of a shell, would otherwise
be sent upstream as four characters. What is put in is not searched again, and no message contains it.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from dragoman_server.settings.values import InvalidValue

# Enough for a key or a certificate chain. A larger file is the wrong file.
MAX_FILE_BYTES = 64 * 1024

_DOLLAR = r"\$(?:(?P<escaped>\$)|\{(?P<inner>[^}]*)\})?"
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"


def expand(text: str, environ: Mapping[str, str], directory: Path, references: list[str]) -> str:
    """Resolve all references in `text`. Raises InvalidValue, whose text names the reference and never a value.

    directory: where relative files start.
    references: gets what was put in (`KEY`, `file:/run/key`), in the order of the text.
    """

    def replace(match: re.Match[str]) -> str:
        if match["escaped"]:
            return "$"
        inner = match["inner"]
        if inner is None:
            raise InvalidValue('a single "$": write "${NAME}" for a variable, "$$" for a dollar sign')
        references.append(inner)
        if inner.startswith("file:"):
            return _read(inner.removeprefix("file:"), directory)
        if not re.fullmatch(_NAME, inner):
            raise InvalidValue(f'"${{{inner}}}" is neither "${{NAME}}" nor "${{file:PATH}}"')
        value = environ.get(inner)
        if value is None:
            raise InvalidValue(f"the environment variable {inner} is not set")
        return value

    return re.sub(_DOLLAR, replace, text)


def _read(name: str, directory: Path) -> str:
    if not name:
        raise InvalidValue('"${file:}" names no file')
    try:
        path = directory / Path(name).expanduser()
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise InvalidValue(f"the file {name} is larger than {MAX_FILE_BYTES} bytes")
        # Editors and `echo` end a file with a newline, which is not part of the key.
        return data.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        # `from None`, because the cause contains the bytes of the file.
        raise InvalidValue(f"the file {name} is not UTF-8 text") from None
    except (OSError, RuntimeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidValue(f"cannot read the file {name}: {reason}") from None
