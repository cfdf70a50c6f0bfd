"""What E2B's Python SDK reads about a sandbox: its network rules and its usage over
time. Says how each check went, a line each, for e2b_test.go."""
import datetime
import sys
import time
import traceback

from e2b import Sandbox

failed = 0
ALL = "0.0.0.0/0"


def check(f):
    global failed
    try:
        f()
        print("ok", f.__name__, flush=True)
    except BaseException:
        failed += 1
        print("FAIL %s: %s" % (f.__name__, traceback.format_exc().replace("\n", "\n     ")), flush=True)


@check
def network():
    for options, internet, allow, deny in [
        ({}, True, None, None),
        ({"allow_internet_access": False}, False, None, [ALL]),
        ({"network": {"allow_out": ["1.1.1.1"], "deny_out": [ALL]}}, False, ["1.1.1.1"], [ALL]),
        ({"network": {"deny_out": ["8.8.8.8"]}}, True, None, ["8.8.8.8"]),
    ]:
        box = Sandbox.create(timeout=60, **options)
        info = box.get_info()
        rules = info.network or {}
        got = info.allow_internet_access, rules.get("allow_out"), rules.get("deny_out")
        assert got == (internet, allow, deny), (options, got)
        box.kill()


@check
def usage():
    box = Sandbox.create(timeout=600)
    box.commands.run("timeout 20 sh -c 'while :; do :; done'", background=True)
    end = time.time() + 60
    while len(box.get_metrics()) < 3:
        assert time.time() < end
        time.sleep(1)
    last = box.get_metrics()[-1]
    assert last.cpu_used_pct > 5 and last.cpu_count >= 1, last
    assert 0 < last.mem_used <= last.mem_total and 0 < last.disk_total, last
    assert box.get_metrics(end=datetime.datetime.now() - datetime.timedelta(hours=1)) == []
    box.kill()
    assert len(Sandbox.get_metrics(box.sandbox_id)) >= 3


sys.exit(1 if failed else 0)
