"""The releases' own parsers and tokenizers on what the project gives them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from service.engine.process.arguments import OWNED, OWNED_WITH_TINY_MODEL, refused_arguments
from service.engine.process.command import plan_launch
from service.engine.tiny_model import write_tiny_model
from service.plugin.settings import Profile
from tests.real.launches import RELEASES, python_of

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

PARSE = """
import argparse, json, sys
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
plain = (str, int, float)
parsed = [{name: value for name, value in vars(parser.parse_args(words)).items() if isinstance(value, plain)}
          for words in json.load(sys.stdin)]
options = [option for action in parser._actions for option in action.option_strings]
print(json.dumps({"parsed": parsed, "options": options}))
"""

TOKENIZE = """
import json, sys
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
text = "page 128\\n\\u00e9\\u4e2d"
ids = tokenizer(text)["input_ids"]
same = tokenizer.decode(ids) == text
print(json.dumps({"round_trip": same, "bytes": ids == list(text.encode()), "size": len(tokenizer)}))
"""


def ask(release: str, program: str, *arguments: str, given: object = None) -> Any:
    """Run a program in a release's interpreter; it answers with one line of JSON."""
    answer = subprocess.run(
        [str(python_of(release)), "-c", program, *arguments],
        input=json.dumps(given),
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stderr[-4000:]
    return json.loads(answer.stdout.splitlines()[-1])


def arguments(profile: Profile, folder: Path, *, tiny_model: bool = True) -> list[str]:
    planned = plan_launch(
        python=Path("/engine/bin/python"),
        profile=profile,
        model=folder,
        tiny_model=tiny_model,
        folder=folder,
        overlay=folder,
        port=31000,
        seed=7,
        pool_pages=32,
    )
    return list(planned.argv[3:])


@pytest.mark.parametrize("release", RELEASES)
def test_release_takes_every_argument_and_no_option_of_it_is_refused_by_accident(release: str, tmp_path: Path) -> None:
    profiles = (Profile.ASCEND, Profile.REHEARSAL)
    given = [arguments(profile, tmp_path) for profile in profiles]
    answer = ask(release, PARSE, given=[*given, arguments(Profile.ASCEND, tmp_path, tiny_model=False)])
    ascend, rehearsal, users_model = answer["parsed"]
    for parsed, device, backend in [(ascend, "npu", "ascend"), (rehearsal, "cpu", "torch_native")]:
        assert (parsed["device"], parsed["attention_backend"]) == (device, backend)
        assert (parsed["page_size"], parsed["max_total_tokens"], parsed["random_seed"]) == (128, 4096, 7)
        assert (parsed["load_format"], parsed["skip_tokenizer_init"], parsed["enable_metrics"]) == (
            "safetensors",
            True,
            True,
        )
        assert (parsed["host"], parsed["port"], parsed["log_level_http"]) == ("127.0.0.1", 31000, "warning")
    assert (users_model["load_format"], users_model["skip_tokenizer_init"]) == ("auto", False)

    owned = OWNED.keys() | OWNED_WITH_TINY_MODEL.keys()
    assert owned <= set(answer["options"])
    others = [option for option in answer["options"] if option not in owned | {"-h"}]
    assert [option for option in others if refused_arguments([option], tiny_model=True)] == []


@pytest.mark.parametrize("release", RELEASES)
def test_tiny_models_tokenizer_is_loaded_by_transformers_and_gives_bytes(release: str, tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path, Profile.REHEARSAL)
    assert ask(release, TOKENIZE, str(model)) == {"round_trip": True, "bytes": True, "size": 256}
