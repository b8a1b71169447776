"""Coding agents as installed do a small task through `dragoman run`: `make test-clients`.

Each of them runs a command by its own shell tool and then repeats what it printed. The model is scripted: the built-in
simulator, and the simulator behind each protocol of upstreams. A client has its own home directory.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from command.process import GatewayProcess
from sdk_clients.processes import UPSTREAMS, Simulator

from dragoman import UPSTREAMS as SPECS
from dragoman_server.cli.lint.prefixes import check_prefixes
from dragoman_server.recordings.document import load
from dragoman_server.settings.client_keys import hash_client_key, new_key
from dragoman_server.settings.secret import Secret

ROOT = Path(__file__).parents[2]
PLACE = ROOT / ".clients"
PATH = os.pathsep.join([str(PLACE / "node_modules" / ".bin"), os.environ["PATH"]])

# The machine may be busy: this bounds a hang, it is no expectation.
DEADLINE_S = 180.0

PROMPT = "Please run `echo made by a tool | tee made.txt` for me."


@dataclass(frozen=True)
class Agent:
    """How one agent does a task without questions. package: its name in the npm registry."""

    package: str
    arguments: tuple[str, ...]

    @property
    def install(self) -> str:
        return f"npm install --prefix .clients {self.package}"


AGENTS = {
    "claude": Agent("@anthropic-ai/claude-code", ("-p", PROMPT, "--allowedTools", "Bash")),
    "codex": Agent(
        "@openai/codex",
        ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", PROMPT),
    ),
    "copilot": Agent("@github/copilot", ("--allow-all-tools", "-p", PROMPT)),
    "gemini": Agent("@google/gemini-cli", ("--skip-trust", "--yolo", "-p", PROMPT)),
    "opencode": Agent("opencode-ai", ("run", PROMPT)),
    "qwen": Agent("@qwen-code/qwen-code", ("--yolo", "-p", PROMPT)),
}

# The module of each SDK of Gemini, and how it is installed.
_NPM = "npm install --prefix .clients"
SDKS = {
    "google.genai": "pip install --target .clients/python google-genai",
    "genai31": f"{_NPM} genai31@npm:@google/genai@3.1",
    "genai232": f"{_NPM} genai232@npm:@google/genai@2.32",
    "@ai-sdk/google": f"{_NPM} @ai-sdk/google ai@6",
    "@langchain/google-genai": f"{_NPM} @langchain/google-genai @langchain/core",
}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The simulator as an upstream of each protocol."""
    with Simulator().ready() as simulator:
        lines = ["[server]", "simulator = true"]
        for protocol, name in UPSTREAMS.items():
            base = f"http://127.0.0.1:{simulator.port}" + SPECS[protocol].base_path
            lines += ["[[upstreams]]", f'name = "{name}"', f'protocol = "{protocol}"', f'base_url = "{base}"']
        file = tmp_path_factory.mktemp("gateway") / "dragoman.toml"
        file.write_text("\n".join(lines) + "\n")
        yield file


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("upstream", ["sim", *UPSTREAMS.values()])
@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_runs_a_command_and_reports_it(
    tmp_path: Path, config: Path, name: str, upstream: str, backend: str
) -> None:
    agent = AGENTS[name]
    if shutil.which(name, path=PATH) is None:
        pytest.skip(f"{name} is not installed: {agent.install}")
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    models = ("--model", f"{upstream}/shell", "--small-model", f"{upstream}/echo")
    done = subprocess.run(
        [sys.executable, "-m", "dragoman_server", "run", *models, "--", name, *agent.arguments],
        cwd=work,
        env={
            "PATH": PATH,
            "HOME": str(home),
            "TMPDIR": str(tmp_path),
            "DRAGOMAN_CONFIG": str(config),
            "DRAGOMAN_BACKEND": backend,
            "DRAGOMAN_RECORD": str(tmp_path / "recordings"),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    shown = done.stdout + done.stderr
    assert done.returncode == 0, shown
    assert (work / "made.txt").read_text() == "made by a tool\n", shown
    assert "made by a tool" in done.stdout, shown
    # What each request after the first one has in front is what the upstream has cached.
    recordings = [(file.name, load(file)) for file in (tmp_path / "recordings").glob("*.json")]
    report = check_prefixes(recordings)
    assert report.broken == []
    assert report.continued
    # Nothing failed on the way, and no address or key of this run is in a file of the user.
    assert "the gateway logged" not in done.stderr, shown
    settings = [file for pattern in ("*.json", "*.jsonc", "*.toml") for file in home.rglob(pattern)]
    assert not any(b"drk_" in file.read_bytes() for file in settings)


CLIENT_KEY, SECRET = new_key(), "a-secret-of-some-length-0123456789"
CLIENT_KEYS = f"""
[models]
"*" = "UPSTREAM/shell"
[[client_keys]]
name = "ci"
hash = "{hash_client_key(CLIENT_KEY, Secret(SECRET))}"
[[aws_keys]]
access_key_id = "AKIDEXAMPLE"
secret_access_key = "the-secret-access-key-of-it"
client_key = "ci"
"""
ON_BEDROCK = {
    "CLAUDE_CODE_USE_BEDROCK": "1",
    "AWS_REGION": "us-east-1",
    "ANTHROPIC_BEDROCK_BASE_URL": "URL",
    **{f"ANTHROPIC_DEFAULT_{tier}_MODEL": "us.anthropic.claude" for tier in ("OPUS", "SONNET", "HAIKU")},
}
# What docs/clouds.md tells to set, and a path that requests then come at.
CLOUDS: dict[str, tuple[dict[str, str], str]] = {
    "bedrock": ({**ON_BEDROCK, "AWS_BEARER_TOKEN_BEDROCK": CLIENT_KEY}, "/model/us.anthropic.claude/invoke"),
    "bedrock, signed": (
        {
            **ON_BEDROCK,
            "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "the-secret-access-key-of-it",
        },
        "/model/us.anthropic.claude/invoke-with-response-stream",
    ),
    "mantle": (
        {
            "CLAUDE_CODE_USE_MANTLE": "1",
            "AWS_REGION": "us-east-1",
            "ANTHROPIC_BEDROCK_MANTLE_BASE_URL": "URL",
            "AWS_BEARER_TOKEN_BEDROCK": CLIENT_KEY,
        },
        "/v1/messages",
    ),
    "vertex": (
        {
            "CLAUDE_CODE_USE_VERTEX": "1",
            "CLOUD_ML_REGION": "global",
            "ANTHROPIC_VERTEX_PROJECT_ID": "any",
            "ANTHROPIC_VERTEX_BASE_URL": "URL/v1",
            "CLAUDE_CODE_SKIP_VERTEX_AUTH": "1",
            "ANTHROPIC_AUTH_TOKEN": CLIENT_KEY,
        },
        "/v1/projects/any/locations/global/publishers/anthropic/models/",
    ),
    "foundry": (
        {
            "CLAUDE_CODE_USE_FOUNDRY": "1",
            "ANTHROPIC_FOUNDRY_BASE_URL": "URL/anthropic",
            "ANTHROPIC_FOUNDRY_API_KEY": CLIENT_KEY,
        },
        "/anthropic/v1/messages",
    ),
}


@pytest.mark.parametrize("upstream", ["sim", *UPSTREAMS.values()])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_claude_code_that_is_set_for_a_cloud_does_it(
    tmp_path: Path, config: Path, cloud: str, upstream: str
) -> None:
    agent, (variables, path) = AGENTS["claude"], CLOUDS[cloud]
    if shutil.which("claude", path=PATH) is None:
        pytest.skip(f"claude is not installed: {agent.install}")
    file = tmp_path / "dragoman.toml"
    file.write_text(config.read_text() + CLIENT_KEYS.replace("UPSTREAM", upstream))
    with GatewayProcess("--config", str(file), env={"DRAGOMAN_SECRET": SECRET}).ready() as gateway:
        done = subprocess.run(
            ["claude", *agent.arguments],
            cwd=tmp_path,
            env={
                "PATH": PATH,
                "HOME": str(tmp_path / "home"),
                **{name: value.replace("URL", gateway.url) for name, value in variables.items()},
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "made.txt").read_text() == "made by a tool\n", done.stdout + done.stderr
    assert "made by a tool" in done.stdout
    requests = [line for line in gateway.output if path in line]
    assert requests, gateway.output
    assert all('"status": 200' in line for line in requests), requests


CODEX_OVER_A_WEBSOCKET = """
model = "{model}"
model_provider = "dragoman"
model_context_window = 200000
[model_providers.dragoman]
name = "Dragoman"
base_url = "{url}/v1"
wire_api = "responses"
supports_websockets = true
"""


@pytest.fixture
def codex(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Return the command that starts Codex in a new home. The first arguments are for its configuration."""
    if shutil.which("codex", path=PATH) is None:
        pytest.skip(f"codex is not installed: {AGENTS['codex'].install}")
    settings = tmp_path / ".codex" / "config.toml"
    settings.parent.mkdir()
    (tmp_path / "work").mkdir()

    def start(url: str, model: str, *arguments: str) -> subprocess.Popen[str]:
        settings.write_text(CODEX_OVER_A_WEBSOCKET.format(model=model, url=url))
        return subprocess.Popen(
            ["codex", *arguments],
            cwd=tmp_path / "work",
            env={"PATH": PATH, "HOME": str(tmp_path)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.mark.parametrize("upstream", ["sim", *UPSTREAMS.values()])
def test_codex_does_it_over_a_websocket(
    tmp_path: Path, config: Path, codex: Callable[..., subprocess.Popen[str]], upstream: str
) -> None:
    recordings, (command, *arguments) = tmp_path / "recordings", AGENTS["codex"].arguments
    with GatewayProcess("--config", str(config), env={"DRAGOMAN_RECORD": str(recordings)}).ready() as gateway:
        for resumes in ((), ("resume", "--last")):
            (tmp_path / "work" / "made.txt").unlink(missing_ok=True)
            process = codex(gateway.url, f"{upstream}/shell", command, *resumes, *arguments)
            out, err = process.communicate(timeout=DEADLINE_S)
            assert (tmp_path / "work" / "made.txt").read_text() == "made by a tool\n", out + err
            assert "made by a tool" in out
            assert "econnecting" not in err
    turns = [load(file) for file in recordings.glob("*.json")]
    assert {dict(turn.response.headers)["content-type"] for turn in turns} == {"application/json-seq"}


# A model that Codex knows, which it gives its own tool for patches.
KNOWN = "gpt-5.5"
PATCH = "*** Begin Patch\\n*** Add File: made.txt\\n+made by a patch\\n*** End Patch"


@pytest.mark.parametrize("upstream", ["sim", *UPSTREAMS.values()])
def test_codex_patches_and_compacts_over_a_websocket(
    tmp_path: Path, config: Path, codex: Callable[..., subprocess.Popen[str]], upstream: str
) -> None:
    """The second session is resumed, for which its conversation is too long."""
    # Only Responses has tools that take any text.
    patch = PATCH.replace("\\n", "\n") if upstream in ("sim", "responses") else f'{{"input": "{PATCH}"}}'
    command, *options, _ = AGENTS["codex"].arguments
    for model, resumes, prompt, done in (
        ("tools", (), f"call apply_patch {patch}", "A made.txt"),
        ("echo", (), "word " * 400, "word"),
        ("echo", ("resume", "--last"), "the end", "the end"),
    ):
        file = tmp_path / "dragoman.toml"
        file.write_text(f'{config.read_text()}[models]\n"{KNOWN}" = "{upstream}/{model}"\n')
        with GatewayProcess("--config", str(file)).ready() as gateway:
            limit = ("-c", "model_auto_compact_token_limit=4800")
            process = codex(gateway.url, KNOWN, command, *resumes, *limit, *options, prompt)
            out, err = process.communicate(timeout=DEADLINE_S)
        assert done in out, out + err
        assert ("context compacted" in err) == bool(resumes), err
        assert "econnecting" not in err
    assert (tmp_path / "work" / "made.txt").read_text() == "made by a patch\n"


def test_codex_leaves_at_ctrl_c(config: Path, codex: Callable[..., subprocess.Popen[str]]) -> None:
    with GatewayProcess("--config", str(config)).ready() as gateway:
        process = codex(gateway.url, "chat/slow@5", *AGENTS["codex"].arguments)
        gateway.wait_for_line("completed")  # the warm-up
        time.sleep(2)  # the task has begun, and takes longer
        process.send_signal(signal.SIGINT)
        gateway.wait_for_line("client_left")
        process.communicate(timeout=DEADLINE_S)


@pytest.mark.parametrize("upstream", UPSTREAMS.values())
@pytest.mark.parametrize("module", SDKS)
def test_an_sdk_of_gemini_runs_a_tool_loop(config: Path, module: str, upstream: str) -> None:
    script, program, packages = Path(__file__).with_name("gemini_sdks.mjs"), "node", PLACE / "node_modules"
    if module == "google.genai":
        script, program, packages = script.with_suffix(".py"), sys.executable, PLACE / "python"
    if not (packages / module.replace(".", "/")).exists():
        pytest.skip(f"{module} is not installed: {SDKS[module]}")
    # Node looks for packages next to a module and above.
    shutil.copy(script, PLACE)
    with GatewayProcess("--config", str(config)).ready() as gateway:
        done = subprocess.run(
            [program, PLACE / script.name, module, gateway.url, f"{upstream}/shell"],
            env={"PATH": PATH, "PYTHONPATH": str(packages)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("run_shell_command returned: "), done.stdout + done.stderr
    assert "made by a tool" in done.stdout
