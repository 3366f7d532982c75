import functools
from pathlib import Path
from fault.scenarios.campaign import Plan, judged_campaign, or_tell
from harness.shard import ShardProcess
async def test_w(tmp_path):
    await judged_campaign(tmp_path, Plan(kills=3), 77, lambda d: ShardProcess(d, "--workers", "2"))
