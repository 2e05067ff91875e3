"""`doctor` tries every mode and reports the layers of each."""

import os
from pathlib import Path

import pytest

from toolkiln.errors import BackendError
from toolkiln.execution.executor import Invocation
from toolkiln.model import system
from toolkiln.sandbox import sandbox
from toolkiln.sandbox.bubblewrap import interpreter
from toolkiln.sandbox.network.access import Networks
from toolkiln.sandbox.sandbox import Sandbox

from .conftest import is_reachable, open_folder, system_python

__all__ = ["open_folder"]


async def test_every_mode_is_tried_and_every_layer_is_named(tmp_path: Path) -> None:
    diagnosis = await Sandbox(tmp_path, Networks(), mode="B", allow_reduced=True).diagnose()

    assert [trial.mode for trial in diagnosis.trials] == ["A", "B", "C"]
    assert {layer.name for layer in diagnosis.trials[0].layers} == {
        "files", "read-only", "network", "capabilities", "no new privileges", "seccomp", "user",
        "namespaces", "processes", "process limit", "environment", "granted hosts",
    }  # fmt: skip
    assert all(layer.stands for layer in diagnosis.trials[0].layers)
    said = {trial.mode: trial.layers[-1] for trial in diagnosis.trials if trial.works}
    for mode in said.keys() & {"A", "B"}:
        assert (said[mode].name, said[mode].stands) == ("granted hosts", True)
        assert said[mode].detail == "through the proxy and by plain sockets"
    if "C" in said:
        assert (said["C"].name, said["C"].stands) == ("granted hosts", False)
        assert said["C"].detail == "tools with network access cannot run"
    text = "\n".join(diagnosis.lines())
    assert "mode B: in use: bwrap for each call" in text
    assert "mode A: works" in text
    assert '"mode":"B"' in diagnosis.model_dump_json()


async def test_doctor_lists_what_each_mode_does_not_hide(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = interpreter() if is_reachable(interpreter()) else system_python()
    if python is None:
        pytest.skip("mode C: no Python here can be started by an ordinary user")
    monkeypatch.setattr(sandbox, "interpreter", lambda: python)

    diagnosis = await Sandbox(
        open_folder / "doctor", Networks(), mode="auto", allow_reduced=True
    ).diagnose()

    assert diagnosis.mode == "A"
    text = "\n".join(diagnosis.lines())
    full, _, reduced = (trial.visible for trial in diagnosis.trials)
    assert len(full) == 2
    assert {*full} < {*reduced}
    assert f"visible  the host name: {os.uname().nodename}" in text
    assert any("whether a host file exists" in what for what in reduced)
    assert any("process ids" in what for what in reduced)


async def test_without_bwrap_a_full_mode_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "find_bwrap", lambda: None)

    with pytest.raises(BackendError) as refused:
        await sandbox.choose_mode("auto", tmp_path, allow_reduced=False)

    assert (
        refused.value.message
        == "no sandbox works here (A: bwrap is not installed; B: bwrap is not installed)"
    )
    assert "allow_reduced" in str(refused.value.hint)


async def test_a_mode_is_tried_once_and_then_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await sandbox.choose_mode("auto", tmp_path, allow_reduced=False)
    assert first == "A"

    async def never(*_: object) -> system.Trial:
        raise AssertionError("it was tried again")

    monkeypatch.setattr(sandbox, "try_mode", never)
    assert await sandbox.choose_mode("auto", tmp_path, allow_reduced=False) == first


async def test_a_mode_whose_canary_sees_the_host_does_not_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "_canary_call", lambda secret: _seeing("/usr"))

    trial = await sandbox.try_mode("A", tmp_path)

    assert not trial.works
    assert trial.reason == "failed layers: files"


def _seeing(path: str) -> Invocation:
    return Invocation(tool=_original("").tool, arguments={"secret": path})


_original = sandbox._canary_call
