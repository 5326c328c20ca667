"""Which of our kernels a provider is, and the exit code of several launches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from flash_attention.tuning import TABLE_VARIABLE
from flash_lab.bench.measure import SkippedError
from flash_lab.ws_analysis import ncu_mode, providers
from flash_lab.ws_analysis.options import parse
from flash_lab.ws_analysis.providers import WS_PROVIDERS

PACKAGED = Path(__file__).resolve().parents[2] / "flash_attention/tuning_default.json"


@pytest.mark.parametrize("ping_pong", [False, True])
def test_our_kernels_by_kind(
    ping_pong: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a table that knows ping-pong kernels alone."""
    table = json.loads(PACKAGED.read_text())
    for entry in table["entries"]:
        entry["kernels"] = [name for name in entry["kernels"] if "pingpong" in name]
    table["entries"] = [entry for entry in table["entries"] if entry["kernels"]]
    (tmp_path / "table.json").write_text(json.dumps(table))
    monkeypatch.setenv(TABLE_VARIABLE, str(tmp_path / "table.json"))
    provider = WS_PROVIDERS["cuda-ws-pp-fp16" if ping_pong else "cuda-ws-fp16"]
    cpu = torch.device("cpu")
    for seq_len in (128, 8192):
        config, source = providers.cuda_config(provider, torch.float16, 128, seq_len, False, cpu)
        ws = config.warp_specialisation()
        assert ws is not None and ws.ping_pong is ping_pong
        assert (config.d_head, config.dtype.name) == (128, "FP16")
        assert ("tuning table" in source) is ping_pong
    parameters = providers.cuda_parameters(config)
    assert ws and parameters["NUM_MMA_WARPS"] == 4 * ws.n_mma_groups
    assert (parameters["num_warps"], parameters["num_stages"]) == (4, 0)
    with pytest.raises(SkippedError, match="no warp-specialised kernel"):
        providers.cuda_config(provider, torch.float16, 80, 128, False, cpu)


def test_an_unknown_reference_is_a_mistake_in_the_code() -> None:
    x = torch.empty(1, 1, 1, 64)
    with pytest.raises(ValueError, match="is not known"):
        providers.bind("fa9", (x, x, x), None, False)


@pytest.mark.parametrize(
    ("codes", "expected"),
    [([0, 0], 0), ([0, 4], 3), ([4, 4], 4), ([0, 1, 4], 1), ([4, 1], 1)],
)
def test_codes_of_several_launches(
    codes: list[int], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = list(codes)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(ncu_mode, "profile_one", lambda *_, tune: left.pop(0))
    lengths = ",".join(str(128 * (n + 1)) for n in range(len(codes)))
    options = ["--mode", "ncu", "--prepare", "--n_ctx", lengths, "--provider", "fa2"]
    assert ncu_mode.run(parse(options)) == expected
