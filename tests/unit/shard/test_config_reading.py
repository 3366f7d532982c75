"""Settings of reading and of proxies: what would only fail later is refused at the start."""

from __future__ import annotations

import pytest

from atoll.controllers.workspaces.logicalcluster_deletion import LogicalClusterDeletion
from atoll.controllers.workspaces.workspaces import WorkspaceController
from atoll.machinery.process.config import comma_separated
from atoll.shard.config import ShardConfig
from atoll.standalone.runner import store_options


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"list_window": 0}, "list-window"),
        ({"list_window": 301, "log_retention": 300}, "list-window"),
        ({"conversion_cel_transformation_timeout": ""}, "conversion-cel-transformation-timeout"),
        ({"conversion_cel_transformation_timeout": "0s"}, "conversion-cel-transformation-timeout"),
        ({"conversion_cel_transformation_timeout": "1h"}, "conversion-cel-transformation-timeout"),
        ({"conversion_cel_transformation_timeout": "31s"}, "conversion-cel-transformation-timeout"),
        ({"log_retention": 0}, "list-window"),
        ({"requestheader_username_headers": ""}, "requestheader-username-headers"),
        ({"requestheader_username_headers": " , "}, "requestheader-username-headers"),
        ({"requestheader_group_headers": "X-Remote Group"}, "requestheader-group-headers"),
        ({"requestheader_extra_headers_prefix": "X:"}, "requestheader-extra-headers-prefix"),
    ],
)
def test_settings_that_mean_nothing_are_refused_by_name(settings: dict[str, object], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        ShardConfig(**settings)  # type: ignore[arg-type]


def test_the_store_keeps_what_lists_and_watches_were_promised() -> None:
    options = store_options(ShardConfig(list_window=7, log_retention=20))
    assert (options.list_window_s, options.log_retention_s, options.maintenance_interval_s) == (7, 20, 10.0)
    assert store_options(ShardConfig()).maintenance_interval_s == 30.0


@pytest.mark.parametrize(("text", "seconds"), [("1s", 1.0), ("500ms", 0.5), ("1.5s", 1.5)])
def test_transformations_have_a_time_in_gos_words(text: str, seconds: float) -> None:
    assert ShardConfig(conversion_cel_transformation_timeout=text).transformation_timeout_s == seconds
    assert ShardConfig().transformation_timeout_s == 1.0


def test_a_list_is_separated_by_commas() -> None:
    assert comma_separated(" a, b ,,c ") == ("a", "b", "c")
    assert comma_separated("") == ()


def test_workspaces_are_tried_again_within_seconds() -> None:
    assert WorkspaceController.max_delay_s <= 10
    assert LogicalClusterDeletion.max_delay_s <= 10
