"""The benchmarks run, and print and record each figure. Their values are not checked."""

import subprocess
import sys
from pathlib import Path

import bench_figures
import pytest
from bench_figures import Figure

ROOT = Path(__file__).parents[1]


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="CPU time is read from /proc")
@pytest.mark.parametrize("figure", ["paced", "whole", "forwarded"])
def test_the_gateway_is_measured_beside_the_relay(figure: str) -> None:
    options = [
        "--only",
        "server",
        "--loop",
        "asyncio",
        "--figure",
        figure,
        "--rounds",
        "1",
        "--seconds",
        "0.2",
    ]
    command = [sys.executable, str(ROOT / "tests" / "bench"), *options]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in output.splitlines()]
    found = [(line[0], line[1], line[2]) for line in lines]
    assert found == [(figure, "messages>chat", "asyncio"), (figure, "messages>chat", "relay")]


def test_figures_are_appended_and_those_of_the_relay_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench_figures, "FILE", tmp_path / "history.csv")
    core = Figure("text", "messages>chat", 0.9, "us", 1.333, python="3.11.7", commit="12345678")
    gateway = Figure(
        "whole", "chat>chat", 700.0, "us/request", 30.0, "trio", "3.13.0", "12345678", waited=0.016
    )
    relay = Figure("whole", "chat>chat", 20.0, "us/request", 1.0, "relay", waited=0.0)
    bench_figures.record([core])
    bench_figures.record([gateway, relay])
    assert [list(row.values())[1:] for row in bench_figures.read()] == [
        ["12345678", "3.11.7", "text", "messages>chat", "", "1.33", ""],
        ["12345678", "3.13.0", "whole", "chat>chat", "trio", "30.00", "0.02"],
    ]
