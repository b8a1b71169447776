"""The board and the alert rules query metrics and labels that exist."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman_server.telemetry.metrics import METRICS, MetricKind

DEPLOY = Path(__file__).parents[3] / "docs" / "deploy"
BOARD = json.loads((DEPLOY / "grafana.json").read_text("utf-8"))
ALERTS = (DEPLOY / "alerts.yml").read_text("utf-8")

# Of prometheus-client.
PROCESS = {
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_open_fds",
    "process_max_fds",
}
# Prometheus adds the first two to all that it scrapes.
EVERYWHERE = {"job", "instance", "pid", "le"}

_METRIC = re.compile(r"\b((?:dragoman|process)_[a-z_]+)\b(?:\{(.*?)\})?")
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPING = re.compile(r"\b(?:by|ignoring|on)\s*\(([^)]*)\)")


def known() -> dict[str, set[str]]:
    """Return the labels of each name that a query may have."""
    found = {name: set[str]() for name in PROCESS}
    for spec in METRICS:
        suffixes = ("_bucket", "_sum", "_count") if spec.kind is MetricKind.HISTOGRAM else ("",)
        found |= {spec.name + suffix: set(spec.labels) for suffix in suffixes}
    return found


def expressions() -> Iterator[str]:
    for panel in BOARD["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for variable in BOARD["templating"]["list"]:
        query = variable["query"]
        if isinstance(query, dict):
            # label_values(metric, label) as a query by that label
            inner, _, label = query["query"].removeprefix("label_values(").removesuffix(")").rpartition(", ")
            yield f"sum by ({label}) ({inner})"
    yield from re.findall(r"expr: (?:\|\n)?(.*?)\n {8}(?:for|labels)", ALERTS, re.DOTALL)


EXPRESSIONS = list(expressions())


def test_there_is_something_to_check() -> None:
    assert len(EXPRESSIONS) > 40
    assert sum("[5m]" in each for each in EXPRESSIONS) >= 1


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_metrics_and_labels_exist(expression: str) -> None:
    metrics, labels = known(), set[str]()
    used = [match for match in _METRIC.finditer(expression) if not match[1].endswith("_over_time")]
    assert used or expression.startswith("up{"), expression
    for match in used:
        assert match[1] in metrics, match[1]
        labels |= metrics[match[1]]
        assert set(_LABEL.findall(match[2] or "")) <= metrics[match[1]] | EVERYWHERE, match[0]
    for group in _GROUPING.findall(expression):
        grouped = {each.strip() for each in group.split(",")}
        assert not used or grouped <= labels | EVERYWHERE, group


def test_every_metric_of_the_gateway_is_on_the_board() -> None:
    text = " ".join(target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", ()))
    assert [spec.name for spec in METRICS if spec.name not in text] == []


def test_the_board_can_be_imported() -> None:
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(ids) == len(set(ids))
    places = [panel["gridPos"] for panel in BOARD["panels"]]
    taken = [
        (x, y)
        for at in places
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(taken) == len(set(taken)), "panels overlap"
    assert max(x for x, _ in taken) < 24
    sources = {json.dumps(panel["datasource"]) for panel in BOARD["panels"] if panel["type"] != "row"}
    assert sources == {'{"type": "prometheus", "uid": "${datasource}"}'}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    "command", [("check", "rules", "alerts.yml"), ("check", "config", "--syntax-only", "prometheus.yml")]
)
def test_prometheus_accepts_the_files(command: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *command], cwd=DEPLOY, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


# By alert: series at intervals of a minute, by which it fires.
FIRING = {
    "DragomanDown": {'up{job="dragoman"}': "0x30"},
    "DragomanRequestsFail": {
        'dragoman_requests_total{upstream="u", outcome="failed"}': "0+1x30",
        'dragoman_requests_total{upstream="u", outcome="completed"}': "0+9x30",
    },
    "DragomanNoUsableAccount": {
        'dragoman_account_state{upstream="u", account="a", state="ready"}': "0x30",
        'dragoman_account_state{upstream="u", account="b", state="ready"}': "0x30",
    },
    "DragomanAccountDisabled": {'dragoman_account_state{account="a", state="disabled"}': "1x30"},
    "DragomanMisconfigured": {'dragoman_requests_total{upstream="u", error="misconfigured"}': "0+1x30"},
    "DragomanSlowFirstByte": {
        'dragoman_time_to_first_byte_seconds_bucket{stream="true", le="30.0"}': "0x30",
        'dragoman_time_to_first_byte_seconds_bucket{stream="true", le="60.0"}': "0+1x30",
        'dragoman_time_to_first_byte_seconds_bucket{stream="true", le="+Inf"}': "0+1x30",
    },
    "DragomanLoopStands": {"dragoman_loop_stalls_total": "0+1x30"},
    "DragomanAccountStoreDown": {"dragoman_account_store_up": "0x30"},
    "DragomanBudgetNearlySpent": {'dragoman_budget_used_ratio{holder="group", name="team"}': "0.8x30"},
    "DragomanFewFileDescriptors": {
        'process_open_fds{job="dragoman"}': "90x30",
        'process_max_fds{job="dragoman"}': "100x30",
    },
}


def test_every_alert_is_tried() -> None:
    assert re.findall(r"alert: (\w+)", ALERTS) == list(FIRING)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize("alert", FIRING)
def test_alerts_fire(alert: str, tmp_path: Path) -> None:
    firing = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})'
    tests = {
        "rule_files": [str(DEPLOY / "alerts.yml")],
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": name, "values": values} for name, values in FIRING[alert].items()
                ],
                "promql_expr_test": [
                    {
                        "expr": firing,
                        "eval_time": "25m",
                        "exp_samples": [{"labels": "{}", "value": 1}],
                    }
                ],
            }
        ],
    }
    (file := tmp_path / "tests.yml").write_text(json.dumps(tests), "utf-8")  # JSON is YAML
    done = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
