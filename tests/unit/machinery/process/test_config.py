"""The help of every process: each setting is described once, the first screen shows the common ones."""

from __future__ import annotations

import pytest

from atoll.cacheserver.config import CacheServerConfig
from atoll.eventgateway.config import EventGatewayConfig
from atoll.frontproxy.config import FrontProxyConfig
from atoll.machinery.process import config as settings
from atoll.machinery.process.config import ProcessConfig
from atoll.shard.config import ShardConfig
from atoll.standalone.site.processes import StartConfig
from atoll.virtualworkspace_sdk.config import ViewConfig

CONFIGS = [StartConfig, ShardConfig, FrontProxyConfig, CacheServerConfig, EventGatewayConfig, ViewConfig]


def help_text(config: type[ProcessConfig], flag: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        settings.load(config, [flag], {}, "atoll thing")
    assert ended.value.code == 0
    return capsys.readouterr().out


def flags_in(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if line.startswith("  --")]


@pytest.mark.parametrize("config", CONFIGS)
def test_every_setting_is_described_under_one_subject(config: type[ProcessConfig]) -> None:
    described = [name for subject in config.SUBJECTS.values() for name in subject]
    assert sorted(described) == sorted(config.__struct_fields__)
    assert all(text for subject in config.SUBJECTS.values() for text in subject.values())
    assert config.SUMMARY.endswith(".")
    assert set(config.COMMON) <= set(described)


@pytest.mark.parametrize("config", CONFIGS)
def test_the_first_screen_shows_the_common_settings_and_how_to_see_all(
    config: type[ProcessConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = flags_in(help_text(config, "--help", capsys))
    common = {"--" + name.replace("_", "-") for name in config.COMMON}
    assert set(shown) == {*common, "--config", "--print-config", "--help-all"}


@pytest.mark.parametrize("config", CONFIGS)
def test_the_second_screen_shows_every_setting_by_subject(
    config: type[ProcessConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    text = help_text(config, "--help-all", capsys)
    assert {"--" + name.replace("_", "-") for name in config.__struct_fields__} <= set(flags_in(text))
    assert all(f"\n{subject}:\n" in text for subject in config.SUBJECTS)


def test_ten_settings_are_enough_to_start() -> None:
    assert len(StartConfig.COMMON) == len(set(StartConfig.COMMON)) == 10


@pytest.mark.parametrize("config", [StartConfig, ShardConfig, FrontProxyConfig])
def test_the_help_names_the_feature_gates_without_an_effect(
    config: type[ProcessConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, without = " ".join(help_text(config, "--help", capsys).split()).partition("Accepted without any effect: ")
    listed = without.partition(" --")[0]
    assert "CacheAPIs" in listed
    assert "WorkspaceAuthentication" not in listed


@pytest.mark.parametrize("text", ["Wings=true", "CacheAPIs=maybe", "CacheAPIs"])
@pytest.mark.parametrize("config", [StartConfig, ShardConfig, FrontProxyConfig])
def test_a_feature_gate_that_does_not_exist_is_refused(config: type[ProcessConfig], text: str) -> None:
    flags = (
        ["--feature-gates", text, "--mapping-file", "m"] if config is FrontProxyConfig else ["--feature-gates", text]
    )
    with pytest.raises(settings.ConfigError, match=r"unrecognized feature gate: Wings|invalid value of CacheAPIs"):
        settings.load(config, flags, {}, "atoll thing")


def test_a_log_setting_that_does_not_exist_is_refused() -> None:
    for flag in ("--log-level", "--log-format", "--log-requests"):
        with pytest.raises(settings.ConfigError, match=f"{flag[2:]} 'loud' is none of"):
            settings.load(ShardConfig, [flag, "loud"], {}, "atoll thing")
