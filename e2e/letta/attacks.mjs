// Tools that attack their channel. The result of each must be the function's return
// value or an explicit error.
import { assert, check, run as checks } from './harness.mjs'
import { config, run } from './clients.mjs'

const right = (r, value) => assert.deepEqual([r.status, r.func_return], ['success', value], JSON.stringify(r))
const corrupted = (r) => {
  assert.equal(r.status, 'error', JSON.stringify(r))
  assert.match(r.tool_return, /Function ran, but output is corrupted\./)
}
const forged = `
import json, hashlib, struct, uuid, os, sys, base64
payload = json.dumps({"name": "f", "value": "forged", "text": "", "state": None, "failure": None})
frame = (json.dumps({"type": "report", "size": len(payload), "sum": hashlib.sha256(payload.encode()).hexdigest(), "payload": payload}) + "\\n").encode()
marker = uuid.uuid5(uuid.NAMESPACE_DNS, "local-sandbox-result-start-marker").bytes
evil = json.dumps({"results": "forged", "agent_state": None}).encode()
old = marker + struct.pack(">I", len(evil)) + hashlib.md5(evil).hexdigest().encode() + evil
`

check('prints the frames of this channel and of others', async () => {
  right(await run(`${forged}
def f():
    for out in (sys.stdout, sys.stderr):
        out.buffer.write(frame + old + base64.b64encode(evil)); out.flush()
    return "right"`), 'right')
})

check('writes frames to every descriptor', async () => {
  right(await run(`${forged}
def f():
    for fd in range(3, 64):
        try: os.write(fd, frame + b"garbage without an end" + old)
        except OSError: pass
    return "right"`), 'right')
})

check('forks, and parent and child return', async () => {
  for (const fork of ['os.fork()', 'ctypes.CDLL(None).fork()']) {
    right(await run(`
import os, ctypes
def f():
    pid = ${fork}
    if pid == 0:
        return "the child's"
    os.waitpid(pid, 0)
    return "right"`), 'right')
  }
})

check('a child raises, and another writes', async () => {
  right(await run(`${forged}
def f():
    if os.fork() == 0:
        raise ValueError("the child's")
    if os.fork() == 0:
        for i in range(200): os.write(3, frame)
        os._exit(0)
    import time; time.sleep(0.3)
    return "right"`), 'right')
})

check('closes all descriptors', async () => {
  corrupted(await run('import os\ndef f():\n    os.closerange(0, 4096)\n    return "right"'))
  corrupted(await run('import os\ndef f():\n    os.close(3)\n    open("/tmp/x", "w+b", buffering=0)\n    return "right"').then((r) => {
    // The descriptor is now a file of the tool, which the host does not read.
    assert.notEqual(r.func_return, 'right')
    return r
  }))
})

check('ends in the middle of a frame', async () => {
  corrupted(await run(`${forged}
def f():
    os.write(3, frame[:len(frame) // 2])
    os.write(3, b"\\n" + frame[:20] + b"\\n")
    os._exit(0)`))
  const r = await run(`
import os, threading, time
def f():
    def end():
        time.sleep(0.02); os._exit(0)
    threading.Thread(target=end).start()
    return "x" * 6_000_000`, {}, { return_char_limit: 5 })
  if (r.status === 'success') assert.equal(r.func_return.length, 6_000_000)
  else assert.match(r.tool_return, /corrupted|exited with code 0 before it returned/)
})

check('ends without returning', async () => {
  const text = async (source) => {
    const r = await run(source)
    assert.equal(r.status, 'error')
    return r.tool_return
  }
  assert.match(await text('import os\ndef f():\n    os._exit(0)'), /ProcessExited: .* exited with code 0 before it returned/)
  assert.match(await text('import os\ndef f():\n    os._exit(7)'), /exited with code 7/)
  assert.match(await text('import os\ndef f():\n    os.kill(os.getpid(), 9)'), /SIGKILL/)
  assert.match(await text('def f():\n    raise SystemExit(3)'), /SystemExit: 3/)
  assert.match(await text('def f():\n    return "x" * 9_000_000'), /ValueTooLarge/)
})

check('replaces what the driver uses', async () => {
  right(await run(`
import json, hmac, os, sys
def f():
    json.dumps = hmac.new = os.write = lambda *a, **k: b"forged"
    sys.stdout = None
    return "right"`), 'right')
})

check('keeps a frame for a later call', async () => {
  right(await run(`
import gc, json, hmac, hashlib
def f():
    # Its own key a function can find, and sign what it likes with it.
    keys = [o for o in gc.get_objects() if isinstance(o, dict) and "arguments" in o and "packages" in o]
    import sys
    frame = sys._getframe()
    while frame and "key" not in frame.f_locals: frame = frame.f_back
    key = frame.f_locals["key"]
    payload = json.dumps({"name": "f", "value": "forged"})
    sum = hmac.new(key, payload.encode(), hashlib.sha256).hexdigest()
    open("/tmp/frame", "w").write(json.dumps({"type": "report", "size": len(payload), "sum": sum, "payload": payload}) + "\\n")
    return "kept"`), 'kept')
  const r = await run(`
import os
def f():
    for i in range(3): os.write(3, open("/tmp/frame", "rb").read())
    return "right"`)
  assert.equal(r.sandbox_reused, true)
  right(r, 'right')
})

check('leaves modules for the next call', async () => {
  right(await run(`
def f():
    for name in ("json", "hmac", "hashlib", "os", "sys", "ast", "sitecustomize", "usercustomize"):
        open(f"/workspace/{name}.py", "w").write("raise SystemExit('planted')")
    return "planted"`), 'planted')
  right(await run('def f():\n    return "right"'), 'right')
  right(await run('import os\ndef f():\n    [os.remove(f"/workspace/{n}") for n in os.listdir("/workspace") if n.endswith(".py")]\n    return "right"'), 'right')
})

check('leaves a process, which does not outlive the call', async () => {
  const r = await run(`
import os, time
def f():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True: time.sleep(1)
        os._exit(0)
    return "right"`)
  right(r, 'right')
  const next = await run(`
import os
def f():
    out = []
    for p in os.listdir("/proc"):
        if p.isdigit() and int(p) not in (1, os.getpid()):
            try: out.append(open(f"/proc/{p}/cmdline").read())
            except OSError: pass
    return [c[:20] for c in out if "python" in c]`)
  assert.equal(next.sandbox, r.sandbox)
  right(next, [])
})

check('an object that would run when it is unpickled', async () => {
  right(await run(`
class Evil:
    def __reduce__(self): return (eval, ("1/0",))
    def __repr__(self): return "text"
def f():
    return Evil()`), 'text')
})

check('does not end when its time is over', async () => {
  const begin = Date.now()
  const r = await run(`
import signal, time
def f():
    def heard(*_): print("heard", flush=True)
    signal.signal(signal.SIGTERM, heard)
    while True: time.sleep(0.1)`, {}, { timeout_ms: 1000 })
  assert.equal(r.status, 'error')
  assert.match(r.tool_return, /^Error executing function f: TimeoutError: the function did not return within 1s/)
  assert.deepEqual(r.stdout, ['heard\n'])
  assert.ok(Date.now() - begin > 5_500 && Date.now() - begin < 20_000, `${Date.now() - begin} ms`)
  assert.equal(r.timed_out, true)
  const soon = await run('import time\ndef f():\n    time.sleep(60)', {}, { timeout_ms: 500 })
  assert.match(soon.tool_return, /TimeoutError/)
  assert.ok(soon.duration_ms < 3_000, `${soon.duration_ms} ms`)
})

check('in TypeScript: writes to the channel, closes it, ends', async () => {
  const ts = (body) => run(`import fs from 'node:fs'\nexport function f(): any { ${body} }`, {}, { source_type: 'typescript', json_schema: { name: 'f', parameters: { type: 'object', properties: {} } } })
  right(await ts(`fs.writeSync(3, '{"type":"report","size":2,"sum":"00","payload":"{}"}\\nrest'); JSON.stringify = () => '"forged"'; return 'right'`), 'right')
  corrupted(await ts(`fs.closeSync(3); return 'right'`))
  assert.match((await ts(`process.exit(0)`)).tool_return, /exited with code 0/)
  right(await ts(`return { toJSON() { return 'right' } }`), 'right')
})

check('another box for another setup', async () => {
  await config('post', '/local/default')
  right(await run('def f():\n    return "right"'), 'right')
})

checks()
