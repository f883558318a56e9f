from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.engine.process.command import LaunchPlan, plan_launch
from service.engine.process.procfs import TOKEN_VARIABLE
from service.plugin.settings import Allocator, Profile, Settings

INHERITED = {"HOME": "/home/me", "PATH": "/usr/bin", "ASCEND_RT_VISIBLE_DEVICES": "3"}


def plan(profile: Profile = Profile.REHEARSAL, **changes: Any) -> LaunchPlan:
    given: dict[str, Any] = {
        "python": Path("/engines/a/bin/python"),
        "profile": profile,
        "model": Path("/models/m"),
        "tiny_model": True,
        "folder": Path("/runs/1"),
        "overlay": Path("/runs/1/overlay"),
        "port": 31234,
        "seed": 7,
        "inherited": INHERITED,
    }
    return plan_launch(**{**given, **changes})


def option(planned: LaunchPlan, name: str) -> str | None:
    return planned.argv[planned.argv.index(name) + 1] if name in planned.argv else None


def test_ascend_profile_asks_for_the_npu_and_its_attention() -> None:
    planned = plan(Profile.ASCEND)
    assert (option(planned, "--device"), option(planned, "--attention-backend")) == ("npu", "ascend")
    assert option(planned, "--page-size") == "128"
    assert "SGLANG_PLATFORM" not in planned.environment
    assert option(planned, "--mem-fraction-static") is None


def test_ascend_profile_keeps_error_codes_in_the_log_and_the_device_logs_in_the_runs_folder() -> None:
    environment = plan(Profile.ASCEND).environment
    assert environment["TORCH_NPU_COMPACT_ERROR_OUTPUT"] == "0"
    assert environment["ASCEND_PROCESS_LOG_PATH"] == "/runs/1/plog"


def test_ascend_profile_leaves_what_changes_timing_or_memory_to_the_user() -> None:
    added = plan(Profile.ASCEND).environment.keys() - plan(Profile.REHEARSAL).environment.keys()
    assert added == {"TORCH_NPU_COMPACT_ERROR_OUTPUT", "ASCEND_PROCESS_LOG_PATH"}


def test_rehearsal_runs_on_a_plain_cpu_with_our_platform() -> None:
    planned = plan(Profile.REHEARSAL, inherited={**INHERITED, "SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": "64"})
    assert (option(planned, "--device"), option(planned, "--attention-backend")) == ("cpu", "torch_native")
    assert planned.environment["SGLANG_PLATFORM"] == "lastpage_rehearsal"
    assert planned.environment["SGLANG_USE_CPU_ENGINE"] == "0"
    assert planned.environment["OMP_NUM_THREADS"] == "1"


def test_pool_is_given_in_tokens_and_only_when_asked_for() -> None:
    assert option(plan(pool_pages=32, page_size=64), "--max-total-tokens") == "2048"
    assert option(plan(pool_pages=None), "--max-total-tokens") is None


def test_tiny_model_is_loaded_from_its_folder_in_its_own_precision_and_with_nothing_to_download() -> None:
    planned = plan(tiny_model=True)
    assert option(planned, "--load-format") == "safetensors" and "--skip-tokenizer-init" in planned.argv
    assert option(planned, "--dtype") == "float32"
    assert option(plan(tiny_model=True, profile=Profile.ASCEND), "--dtype") is None
    assert planned.environment["HF_HUB_OFFLINE"] == "1"


def test_users_model_is_loaded_as_it_is() -> None:
    planned = plan(tiny_model=False)
    assert option(planned, "--model-path") == "/models/m"
    assert option(planned, "--load-format") is None and "--skip-tokenizer-init" not in planned.argv
    assert "HF_HUB_OFFLINE" not in planned.environment


def test_user_replaces_scenario_and_scenario_replaces_profile() -> None:
    planned = plan(
        scenario_arguments=["--schedule-conservativeness", "0", "--mem-fraction-static", "0.2"],
        user_arguments=["--schedule-conservativeness=0.5"],
    )
    assert planned.argv.count("--mem-fraction-static") == 1 and option(planned, "--mem-fraction-static") == "0.2"
    assert planned.argv[-1] == "--schedule-conservativeness=0.5"
    assert "--schedule-conservativeness" not in planned.argv


def test_interpreter_runs_the_server_module_by_an_argument_list() -> None:
    assert plan().argv[:3] == ("/engines/a/bin/python", "-m", "sglang.launch_server")


def test_plugin_finds_its_settings_in_the_environment() -> None:
    planned = plan(allocator=Allocator.UNPATCHED)
    assert Settings.from_environment(planned.environment) == Settings(
        flight="/runs/1/flight.bin", allocator=Allocator.UNPATCHED, profile=Profile.REHEARSAL
    )


def test_overlay_comes_first_and_what_the_user_had_on_the_path_stays() -> None:
    environment = plan(inherited={"PYTHONPATH": "/usr/local/Ascend/python", "PATH": "/usr/bin"}).environment
    assert environment["PYTHONPATH"] == "/runs/1/overlay:/usr/local/Ascend/python"
    assert environment["PATH"] == "/engines/a/bin:/usr/bin"


def test_users_environment_is_kept_and_the_controllers_python_is_not() -> None:
    own = {"VIRTUAL_ENV": "/work/.venv", "PYTHONHOME": "/opt", TOKEN_VARIABLE: "of another launch"}
    environment = plan(inherited={**INHERITED, **own}).environment
    assert environment["HOME"] == "/home/me" and environment["ASCEND_RT_VISIBLE_DEVICES"] == "3"
    assert "VIRTUAL_ENV" not in environment and "PYTHONHOME" not in environment
    assert environment[TOKEN_VARIABLE] != "of another launch"


@pytest.mark.parametrize("name", ["no_proxy", "NO_PROXY"])
def test_proxy_does_not_catch_what_the_engine_sends_to_itself(name: str) -> None:
    assert plan(inherited={"no_proxy": "corp.example"}).environment[name].endswith("127.0.0.1,localhost")
    assert plan(inherited={"no_proxy": "corp.example"}).environment["no_proxy"].startswith("corp.example,")


def test_users_choice_of_plugins_does_not_shut_ours_out() -> None:
    assert plan(inherited={"SGLANG_PLUGINS": "theirs"}).environment["SGLANG_PLUGINS"] == (
        "theirs,lastpage,lastpage_rehearsal"
    )
    assert "SGLANG_PLUGINS" not in plan().environment


def test_scenario_environment_wins_over_the_users() -> None:
    variable = "SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION"
    planned = plan(inherited={variable: "4096"}, scenario_environment={variable: "1"})
    assert planned.environment[variable] == "1"


def test_worker_titles_leave_the_token_in_proc() -> None:
    assert plan().environment["SPT_NOENV"] == "1"


def test_engine_on_a_device_is_given_time_to_let_go_of_it() -> None:
    assert plan(Profile.ASCEND).grace_seconds >= 10 > plan(Profile.REHEARSAL).grace_seconds


def test_launches_are_told_apart() -> None:
    one, other = plan(), plan()
    assert one.token != other.token and one.served_model_name != other.served_model_name
    assert option(one, "--served-model-name") == one.served_model_name
    # Apart from that a plan is a function of what is asked for.
    same = {"token": "", "served_model_name": "", "environment": {}, "argv": ()}
    assert replace(one, **same) == replace(other, **same)
