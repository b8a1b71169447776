"""Writes the SBOM that is in the wheel: every package that an install of Dragoman can bring, with all its extras.

Standard input: the lock of these packages, with hashes. Names, versions and hashes come from it; licences, and which
package needs which, from the metadata that the index has. Standard output: CycloneDX 1.6 as JSON, without a serial
number or a time, so that the same lock gives the same bytes. `make lock` runs this in the environment of release.txt.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
_LOCKED = re.compile(r"^(\S+)==(\S+)((?:[^\n]*\\\n)[^#]*)", re.MULTILINE)
# How SPDX names what packages say that have no licence expression (PEP 639) yet.
_SPDX = {
    "3-Clause BSD License": "BSD-3-Clause",
    "MIT": "MIT",
    "MIT License": "MIT",
    "Apache-2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD-2-Clause": "BSD-2-Clause",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}


def main() -> None:
    hashes = {
        (name, version): re.findall(r"--hash=sha256:(\w+)", rest)
        for name, version, rest in _LOCKED.findall(sys.stdin.read())
    }
    text = json.dumps(_bom(hashes, _metadata(f"{name}=={version}" for name, version in hashes)), indent=1)
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise SystemExit(f"not CycloneDX 1.6: {error}")
    sys.stdout.write(text + "\n")


def _metadata(pins: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What the index says of each package, those for other platforms too: nothing is installed."""
    with tempfile.NamedTemporaryFile() as report:
        options = (
            "--quiet --dry-run --ignore-installed --no-deps --ignore-requires-python --only-binary :all:"
        )
        command = [sys.executable, "-m", "pip", "install", *options.split(), "--report", report.name, *pins]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found = json.load(report)["install"]
    return {canonicalize_name(each["metadata"]["name"]): each["metadata"] for each in found}


def _bom(
    hashes: Mapping[tuple[str, str], list[str]], metadata: Mapping[str, Mapping[str, Any]]
) -> dict[str, object]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    refs = {name: f"pkg:pypi/{name}@{version}" for name, version in sorted(hashes)}
    optional = [each for extra in project["optional-dependencies"].values() for each in extra]
    edges = _edges({**project, "requires_dist": project["dependencies"] + optional}, metadata)
    required = {project["name"], *_reached(edges, _names(project["dependencies"]))}
    root = f"pkg:pypi/{project['name']}@{project['version']}"
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": project["name"],
                "version": project["version"],
                "licenses": [{"expression": project["license"], "acknowledgement": "declared"}],
                "purl": root,
            }
        },
        "components": [
            {
                "type": "library",
                "bom-ref": refs[name],
                "name": name,
                "version": version,
                "scope": "required" if name in required else "optional",
                # One for each file of this version: which of them is installed is the platform's choice.
                "hashes": [{"alg": "SHA-256", "content": each} for each in sorted(hashes[name, version])],
                "licenses": _licences(metadata[name]),
                "purl": refs[name],
            }
            for name, version in sorted(hashes)
        ],
        "dependencies": [
            {"ref": refs.get(name, root), "dependsOn": sorted(refs[each] for each in edges[name])}
            for name in [project["name"], *sorted(refs)]
        ],
    }


def _edges(project: Mapping[str, Any], metadata: Mapping[str, Mapping[str, Any]]) -> dict[str, set[str]]:
    """By name: what it needs on some platform, by way of the extras that are asked of it too."""
    edges: dict[str, set[str]] = {}
    seen: set[tuple[str, str]] = set()
    left = [(project["name"], "")]
    while left:
        name, extra = left.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        required = [
            Requirement(each)
            for each in {**metadata, project["name"]: project}[name].get("requires_dist", ())
        ]
        for each in required:
            to = canonicalize_name(each.name)
            if to in metadata and _with(each, extra):
                edges.setdefault(name, set()).add(to)
                left += [(to, ""), *((to, more) for more in each.extras)]
    return {name: edges.get(name, set()) for name in {project["name"], *metadata}}


def _with(requirement: Requirement, extra: str) -> bool:
    """Whether it is needed with this extra, or without any where `extra` is empty."""
    named = re.findall(r'extra == "([^"]+)"', str(requirement.marker or ""))
    return extra in named if extra else not named


def _reached(edges: Mapping[str, set[str]], names: set[str]) -> set[str]:
    left, reached = list(names), set(names)
    while left:
        left += edges[left.pop()] - reached
        reached.update(left)
    return reached


def _names(requirements: Iterable[str]) -> set[str]:
    return {canonicalize_name(Requirement(each).name) for each in requirements}


def _licences(metadata: Mapping[str, Any]) -> list[dict[str, object]]:
    """As the package declares them; a list of classifiers does not say whether one may choose."""
    if expression := metadata.get("license_expression"):
        return [{"expression": expression, "acknowledgement": "declared"}]
    classified = [
        each.rpartition(" :: ")[2]
        for each in metadata.get("classifier", ())
        if each.startswith("License :: ")
    ]
    if not classified and metadata.get("license") in _SPDX:
        classified = [metadata["license"]]  # the field before PEP 639
    if not classified:
        raise SystemExit(f"{metadata['name']} declares no licence")
    return [
        {"license": {"id" if each in _SPDX else "name": _SPDX.get(each, each), "acknowledgement": "declared"}}
        for each in classified
    ]


if __name__ == "__main__":
    main()
