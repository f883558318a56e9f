"""Claims about the Prometheus configuration and the alerts, judged by promtool."""

from __future__ import annotations

import subprocess

import yaml

from tests.dashboards.boards import ROOT
from tests.deploy.promtool import tool

CONFIG = ROOT / "deploy/prometheus/prometheus.yml"
RULES = ROOT / "dashboards/rules/lastpage.yml"
RULE_TESTS = RULES.with_name("lastpage.test.yml")


def promtool(*arguments: str) -> str:
    answer = subprocess.run([tool("promtool"), *arguments], capture_output=True, text=True, cwd=ROOT)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


def test_configuration_is_valid_and_has_the_rules() -> None:
    assert "SUCCESS: 1 rule files found" in promtool("check", "config", str(CONFIG))


def test_rules_are_valid() -> None:
    assert "5 rules found" in promtool("check", "rules", str(RULES))


def test_alerts_fire_when_they_should_and_only_then() -> None:
    promtool("test", "rules", str(RULE_TESTS))


def test_every_alert_has_a_test_and_a_text() -> None:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    tests = yaml.safe_load(RULE_TESTS.read_text())["tests"]
    fired = {case["alertname"] for test in tests for case in test.get("alert_rule_test", []) if case["exp_alerts"]}
    quiet = {case["alertname"] for test in tests for case in test.get("alert_rule_test", []) if not case["exp_alerts"]}
    assert fired == {rule["alert"] for rule in group["rules"]}
    assert quiet >= fired - {"LastpageFinding"}
    for rule in group["rules"]:
        assert rule["annotations"].keys() == {"summary", "description"} and rule["labels"]["severity"]


def test_targets_come_from_the_controller() -> None:
    jobs = {job["job_name"]: job for job in yaml.safe_load(CONFIG.read_text())["scrape_configs"]}
    (discovery,) = jobs["lastpage"]["http_sd_configs"]
    assert discovery["url"] == "http://controller:8000/v1/targets"
