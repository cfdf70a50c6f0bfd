// Brig's TypeScript package.
import { createServer } from 'node:http'
import { assert, check, eventually, rejects, run } from './harness.mjs'

const { Brig, BrigError } = await import(process.env.BRIG_TYPESCRIPT)
const brig = new Brig()

check('run: arguments, files, values', async () => {
  const r = await brig.run('def main(n, s): print("p"); return [n * 7, s, open("in").read()]', {
    arguments: { n: 6, s: 'é' }, files: { in: 'given' }, limits: { memory: '256MiB' }, timeoutMs: 20_000,
  })
  assert.deepEqual([r.result, r.has_result, r.stdout, r.exit_code, r.error], [[42, 'é', 'given'], true, 'p\n', 0, null])
  const failed = await brig.run('throw new TypeError("no")', { language: 'javascript' })
  assert.deepEqual([failed.error.name, failed.error.message], ['TypeError', 'no'])
  const late = await brig.run('while True: pass', { timeoutMs: 500 })
  assert.deepEqual([late.timed_out, late.error.code], [true, 'SB005'])
})

check('errors name the options of this package', async () => {
  const e = await rejects(brig.run('1', { timeoutMs: -5 }), BrigError)
  assert.deepEqual([e.field, e.code], ['timeoutMs', 'SB010'])
  const late = await brig.run('while True: pass', { timeoutMs: 500 })
  assert.match(late.error.hint, /timeoutMs/)
})

check('run: called off', async () => {
  const off = new AbortController()
  setTimeout(() => off.abort(), 500)
  await rejects(brig.run('import time; time.sleep(60)', {}, off.signal), 'DOMException', /abort/)
})

// Node's fetch waits five minutes for a response, and some programs take longer.
check('run, exec: what lasts is answered at once', async () => {
  const server = createServer((req, res) => {
    if (req.headers.accept !== 'application/x-ndjson') return res.writeHead(406).end()
    res.writeHead(200, { 'Content-Type': 'application/x-ndjson' }).write('{"event":"ping"}\n')
    const last = req.url === '/v1/run' ? { event: 'result', stdout: 'out' } : { event: 'error', error: { code: 'SB015', kind: 'failed_precondition', message: 'gone' } }
    setTimeout(() => res.end(req.url.includes('/cut/') ? '' : JSON.stringify(last) + '\n'), 100)
  })
  await new Promise((done) => server.listen(0, '127.0.0.1', done))
  const slow = new Brig({ url: `http://127.0.0.1:${server.address().port}` })
  assert.deepEqual(await slow.run('1'), { stdout: 'out' })
  assert.equal((await rejects(slow.exec('a', 'true'), BrigError)).code, 'SB015')
  assert.equal((await rejects(slow.exec('cut', 'true'), BrigError)).code, 'SB003')
  server.close()
})

// A server at its capacity rejects a call before it starts, with the time to retry.
check('a server at its capacity is asked again', async () => {
  const asked = []
  const server = createServer((req, res) => {
    const field = req.url.includes('/quota') ? '' : 'capacity'
    const times = asked.push(req.url)
    if (times > 2 && field) return res.writeHead(204).end()
    res.writeHead(429, { 'Retry-After': '1' })
    res.end(JSON.stringify({ error: { code: 'SB008', kind: 'rate_limited', field, message: 'no' } }))
  })
  await new Promise((done) => server.listen(0, '127.0.0.1', done))
  const url = `http://127.0.0.1:${server.address().port}`
  const begin = Date.now()
  await new Brig({ url }).remove('a')
  assert.equal(asked.length, 3)
  assert.ok(Date.now() - begin >= 2000)
  for (const [path, patienceMs] of [['quota', 30_000], ['a', 0], ['a', 500]]) {
    asked.length = 0
    const e = await rejects(new Brig({ url, patienceMs }).remove(path), BrigError)
    assert.deepEqual([e.status, e.retryAfterMs, asked.length], [429, 1000, 1])
  }
  asked.length = 0
  const off = new AbortController()
  setTimeout(() => off.abort(), 200)
  await rejects(new Brig({ url }).exec('a', 'true', {}, off.signal), 'DOMException', /abort/)
  assert.equal(asked.length, 1)
  server.close()
})

// The last calls need more sandboxes than the server creates within start.wait. The
// pool has no sandboxes with these limits.
check('a burst that the server refuses in part is served in the end', async () => {
  const burst = (b) => Promise.allSettled(Array.from({ length: 40 }, () => b.run('print(1)', { limits: { memory: '200MiB' } })))
  const hasty = await burst(new Brig({ patienceMs: 0 }))
  const refused = hasty.filter((r) => r.status === 'rejected')
  assert.ok(refused.length > 0, 'nothing was refused')
  for (const r of refused) assert.deepEqual([r.reason.status, r.reason.field], [429, 'capacity'])
  const patient = await burst(new Brig({ patienceMs: 600_000 }))
  assert.deepEqual(patient.filter((r) => r.status !== 'fulfilled' || r.value.stdout !== '1\n'), [])
})

check('the key goes to its server and in plain HTTP to no other machine', async () => {
  const asked = []
  const listen = async (answer) => {
    const server = createServer((req, res) => (asked.push(req.headers.authorization), answer(res)))
    await new Promise((done) => server.listen(0, '0.0.0.0', done))
    return server
  }
  const far = await listen((res) => res.writeHead(418).end())
  const near = await listen((res) => res.writeHead(307, { Location: `http://127.0.0.1:${far.address().port}/` }).end())
  // 0.0.0.0 is not a loopback address, but it reaches the listener.
  const url = `http://0.0.0.0:${far.address().port}`
  const refused = (u) => assert.throws(() => new Brig({ url: u, key: 'k' }), (e) => e instanceof BrigError && e.field === 'url')
  for (const u of [url, 'http://brig.example', 'http://10.0.0.1', 'http://localhost.example', 'http://127.0.0.1@brig.example']) refused(u)
  for (const u of ['http://[::1]:1', 'http://localhost', 'https://brig.example']) new Brig({ url: u, key: 'k' })
  assert.deepEqual(asked, [])
  await rejects(new Brig({ url, key: 'k', insecureHttp: true }).remove('a'), BrigError)
  assert.deepEqual(asked, ['Bearer k'])
  const e = await rejects(new Brig({ url: `http://127.0.0.1:${near.address().port}`, key: 'k' }).putSecret('s', 'swordfish'), BrigError)
  assert.match(e.message, /HTTP 307/)
  assert.deepEqual(asked, ['Bearer k', 'Bearer k'])
  far.close()
  near.close()
})

check('a sandbox with all that it may have', async () => {
  await brig.putSecret('ts-token', 'swordfish-swordfish')
  await brig.createWorkspace('ts-data')
  const made = await brig.create({
    name: 'ts-box', labels: { suite: 'typescript' }, limits: { memory: '256MiB' }, ttlMs: 60_000,
    secrets: [{ name: 'ts-token', env: 'TOKEN' }], workspace: { name: 'ts-data', mode: 'overlay' },
    egress: [{ host: 'api.example.com', ports: [443], methods: ['GET'] }],
  })
  assert.deepEqual([made.name, made.state], ['ts-box', 'running'])
  const r = await brig.exec('ts-box', 'printf %s "$TOKEN" | wc -c; echo kept > f; exit 3')
  assert.deepEqual([r.stdout.trim(), r.exit_code], ['19', 3])
  const cat = await brig.exec('ts-box', ['cat', '-', '$HOME'], { stdin: 'é', cwd: '/tmp', env: { LC_ALL: 'C' }, timeoutMs: 10_000 })
  assert.deepEqual([cat.stdout, cat.exit_code], ['é', 1])
  assert.equal((await brig.commit('ts-box')).version.number, 1)
  assert.equal(new TextDecoder().decode(await brig.readWorkspaceFile('ts-data', '/workspace/f')), 'kept\n')
  const changed = await brig.setEgress('ts-box', ['other.example.com'], { bandwidth: '1MiB' })
  assert.deepEqual(changed.egress, { rules: [{ host: 'other.example.com' }], bandwidth: 1 << 20 })
  await brig.remove('ts-box')
  const again = await brig.run('print(open("f").read())', { workspace: 'ts-data' })
  assert.equal(again.stdout, 'kept\n\n')
  assert.ok((await brig.listWorkspaces()).some((w) => w.name === 'ts-data'))
  assert.deepEqual((await brig.listWorkspaceVersions('ts-data')).map((v) => v.number), [1])
  assert.deepEqual((await brig.listWorkspaceFiles('ts-data', { version: 1 })).map((f) => f.path), ['/workspace/f'])
  assert.deepEqual(await brig.listWorkspaceFiles('ts-data', { path: '/none' }), [])
  assert.deepEqual((await brig.diffWorkspace('ts-data', 0, 1)).map((c) => [c.path, c.kind]), [['f', 'added']])
  assert.equal((await brig.restoreWorkspace('ts-data', 1)).files, 1)
  await brig.removeWorkspace('ts-data')
  assert.ok((await brig.listSecrets()).some((s) => s.name === 'ts-token'))
  await brig.removeSecret('ts-token')
  assert.ok((await brig.listImages()).some((i) => i.names.includes('host')))
  assert.ok(Array.isArray(await brig.listTemplates()))
  assert.equal((await rejects(brig.pullImage('a/b:1', { platform: 'no such platform' }), BrigError)).field, 'platform')
})

check('copies with changes', async () => {
  await brig.create({ name: 'ts-origin', env: { A: '1', B: '1' }, ttlMs: 60_000, pauseAfterMs: 30_000 })
  const [copy] = await brig.fork('ts-origin', {
    name: 'ts-copy', labels: { try: 'a' }, ttlMs: 50_000, env: { B: '2' }, egress: ['api.example.com'], bandwidth: '1MiB',
    defaultUser: 'root', defaultCwd: '/etc', pauseAtEnd: true, pauseFilesOnly: true,
  })
  assert.equal((await brig.exec(copy.name, 'echo "$A $B"; id -un; pwd')).stdout, '1 2\nroot\n/etc\n')
  assert.deepEqual(
    [copy.labels, copy.ttl_ms, copy.egress, copy.pause_at_end, copy.pause_files_only],
    [{ try: 'a' }, 50_000, { rules: [{ host: 'api.example.com' }], bandwidth: 1 << 20 }, true, true],
  )
  assert.equal((await brig.exec('ts-origin', 'echo "$A $B"; id -un; pwd')).stdout, '1 1\nuser\n/workspace\n')
  const [blocked] = await brig.fork('ts-copy', { egress: [], pauseAtEnd: false })
  assert.deepEqual([blocked.egress?.rules ?? [], blocked.pause_at_end ?? false], [[], false])
  for (const [field, options] of Object.entries({
    'env': { env: { 'A=B': '' } }, 'defaultUser': { defaultUser: 'no such user' }, 'defaultCwd': { defaultCwd: 'relative' },
    'egress[0]': { egress: [{ host: 'a.example', cidr: '192.0.2.0/24' }] }, 'bandwidth': { bandwidth: 1 }, 'ttlMs': { ttlMs: 1e12 },
    'pauseFilesOnly': { pauseFilesOnly: true }, 'limits.memory': { limits: { memory: '256MiB' } },
  })) {
    assert.equal((await rejects(brig.fork('ts-origin', options), BrigError)).field, field)
  }
  assert.equal((await rejects(brig.fork('ts-origin', { egress: [], bandwidth: -1 }), BrigError)).field, 'bandwidth')
  await brig.pause('ts-origin', { filesOnly: true })
  const [small] = await brig.fork('ts-origin', { limits: { memory: '256MiB' } })
  assert.equal(small.limits.memory, 256 << 20)
  for (const { name } of [small, blocked, copy, { name: 'ts-origin' }]) await brig.remove(name)
})

check('the life of a sandbox with a main program', async () => {
  const made = await brig.create({
    name: 'ts-life', labels: { suite: 'ts-life' }, shell: 'echo main $ONE; id -un; pwd; sleep 100', commandEnv: { ONE: '1' }, user: 'root', cwd: '/tmp',
    env: { ALL: 'a' }, defaultUser: 'user', defaultCwd: '/srv', fixedLease: true, ttlMs: 300_000, limits: { open_files: 99, output: '8KiB' },
  })
  assert.deepEqual([made.fixed_lease, made.limits.open_files, made.limits.output], [true, 99, 8192])
  let log = ''
  for await (const text of brig.followLogs('ts-life')) if ((log += text).endsWith('/tmp\n')) break
  assert.equal(log, 'main 1\nroot\n/tmp\n')
  assert.equal((await brig.exec('ts-life', 'id -un; pwd; echo $ALL$ONE')).stdout, 'user\n/srv\na\n')
  assert.match(await brig.logs('ts-life', { tail: 1, times: true }), /^\d{4}-.* a\n$/)
  assert.deepEqual((await brig.list({ labels: { suite: 'ts-life' }, state: 'running' })).map((s) => s.name), ['ts-life'])
  assert.deepEqual(await brig.list({ labels: { suite: 'other' } }), [])
  assert.ok((await brig.usage('ts-life')).memory > 0)
  assert.ok((await brig.attest('ts-life')).enforcement.memory.at)
  assert.ok((await brig.extend('ts-life', 600_000)).expires > made.expires)
  assert.equal((await brig.get('ts-life')).state, 'running')
  await brig.stop('ts-life', { graceMs: 0 })
  assert.equal((await brig.kill('ts-life')).state, 'stopped')
  await brig.remove('ts-life')
  assert.equal((await rejects(brig.create({ user: 'root' }), BrigError)).field, 'user')
  assert.equal((await rejects(brig.create({ freezeAfterMs: -1 }), BrigError)).field, 'freezeAfterMs')
})

check('runs: commands, bytes, output while they run, and results afterwards', async () => {
  const bytes = new Uint8Array([255, 0])
  const r = await brig.runCommand(['sh', '-c', 'od -An -tx1 in; od -An -tx1; id -u'], { files: { in: bytes }, stdin: bytes, user: 'root', name: 'ts-run' })
  assert.deepEqual(r.stdout.split(/\s+/).filter(Boolean), ['ff', '00', 'ff', '00', '0'])
  assert.equal((await brig.getRun('ts-run')).stdout, r.stdout)
  assert.ok((await brig.listRuns({ status: 'success' })).some((s) => s.sandbox === 'ts-run'))
  const late = await brig.runCommand(['sh', '-c', 'trap "echo end; exit" TERM; while :; do sleep 0.1; done'], { timeoutMs: 1000 })
  assert.ok(late.timed_out)
  const got = { out: [], err: [] }
  const shown = await brig.run('import sys, time; print("a", flush=True); time.sleep(1); print("b"); print("é", file=sys.stderr)', {
    onStdout: (text) => got.out.push(text), onStderr: (text) => got.err.push(text),
  })
  assert.deepEqual([got.out[0], got.out.join(''), got.err.join(''), shown.stdout], ['a\n', 'a\nb\n', 'é\n', 'a\nb\n'])
})

check('files', async () => {
  await brig.create({ name: 'ts-files', ttlMs: 60_000 })
  const text = async (...args) => new TextDecoder().decode(await brig.readFile('ts-files', ...args))
  const wrote = await brig.writeFile('ts-files', '/workspace/a b/ü', 'hällo', { mode: 0o600 })
  assert.deepEqual([wrote.path, wrote.size, wrote.mode], ['/workspace/a b/ü', 6, 0o600])
  assert.deepEqual([await text('a b/ü'), await text('a b/ü', { offset: 3, length: 2 })], ['hällo', 'll'])
  await brig.writeFile('ts-files', 'empty', '')
  const changes = await brig.watchFiles('ts-files', '/workspace', { recursive: true })
  await brig.writeFile('ts-files', 'bytes', new Uint8Array([255]))
  for await (const change of changes) if (change.name === 'bytes' && change.kinds.includes('write')) break
  assert.deepEqual([...(await brig.readFile('ts-files', 'bytes'))], [255])
  assert.equal((await brig.makeDirectory('ts-files', '/srv/d', { user: 'root' })).owner, 'root')
  assert.equal((await brig.moveFile('ts-files', 'bytes', 'moved')).name, 'moved')
  assert.equal((await brig.composeFile('ts-files', ['moved', 'a b/ü'], 'joined')).size, 7)
  assert.deepEqual((await brig.listFiles('ts-files', '/workspace', { depth: 2 })).map((f) => f.name).sort(), ['a b', 'empty', 'joined'])
  await brig.removeFile('ts-files', 'joined')
  assert.equal((await rejects(brig.statFile('ts-files', 'joined'), BrigError)).code, 'SB013')
  await brig.remove('ts-files')
})

check('volumes and their files', async () => {
  const made = await brig.createVolume('ts-volume', { size: '32MiB' })
  assert.deepEqual([made.name, made.size], ['ts-volume', 32 << 20])
  const got = await brig.getVolume(made.id)
  assert.ok(got.name === 'ts-volume' && got.used > 0)
  assert.ok((await brig.listVolumes()).some((v) => v.id === made.id))
  assert.equal((await rejects(brig.createVolume('ts-volume'), BrigError)).kind, 'already_exists')
  assert.equal((await rejects(brig.createVolume('ts-small', { size: 1 }), BrigError)).field, 'size')

  const text = async (path) => new TextDecoder().decode(await brig.readVolumeFile('ts-volume', path))
  const wrote = await brig.writeVolumeFile('ts-volume', '/a b/ü', 'hällo', { force: true, mode: 0o600, uid: 1001, gid: 1002 })
  assert.deepEqual([wrote.name, wrote.path, wrote.size, wrote.mode, wrote.uid, wrote.gid], ['ü', '/a b/ü', 6, 0o600, 1001, 1002])
  assert.equal(await text('a b/ü'), 'hällo')
  const bytes = Uint8Array.from({ length: 1_000_000 }, (_, i) => i % 251)
  await brig.writeVolumeFile('ts-volume', 'bytes', bytes)
  const pieces = []
  for await (const piece of brig.streamVolumeFile('ts-volume', 'bytes')) pieces.push(piece)
  assert.deepEqual(new Uint8Array(Buffer.concat(pieces)), bytes)
  for await (const piece of brig.streamVolumeFile('ts-volume', 'bytes')) { // leaving it early ends the download
    assert.deepEqual(piece, bytes.slice(0, piece.length))
    break
  }
  assert.equal((await brig.writeVolumeFile('ts-volume', '/blob', new Blob(['blob'], { type: 'text/plain' }))).size, 4)
  assert.equal((await rejects(brig.writeVolumeFile('ts-volume', '/blob', ''), BrigError)).kind, 'already_exists')
  await brig.writeVolumeFile('ts-volume', '/blob', '', { force: true })
  assert.equal(await text('/blob'), '')
  const folder = await brig.makeVolumeDirectory('ts-volume', '/d', { mode: 0o700, uid: 7 })
  assert.deepEqual([folder.type, folder.mode, folder.uid, folder.gid], ['directory', 0o700, 7, 1000])
  assert.equal((await brig.makeVolumeDirectory('ts-volume', '/d/e/f', { force: true })).path, '/d/e/f')
  assert.equal((await brig.setVolumeAttributes('ts-volume', '/d', { mode: 0o755, gid: 8 })).gid, 8)
  const stat = await brig.statVolumeFile('ts-volume', '/d')
  assert.deepEqual([stat.mode, stat.uid, stat.gid], [0o755, 7, 8])
  assert.deepEqual((await brig.listVolumeFiles('ts-volume')).map((f) => f.path), ['/a b', '/blob', '/bytes', '/d'])
  assert.deepEqual((await brig.listVolumeFiles('ts-volume', '/d', { depth: 2 })).map((f) => f.path), ['/d/e', '/d/e/f'])
  await brig.removeVolumeFile('ts-volume', '/d')
  assert.equal((await rejects(brig.statVolumeFile('ts-volume', '/d'), BrigError)).code, 'SB013')
  assert.equal((await rejects(brig.streamVolumeFile('ts-volume', '/d').next(), BrigError)).code, 'SB013')
  assert.equal((await rejects(brig.setVolumeAttributes('ts-volume', '/blob', { mode: 0o10000 }), BrigError)).field, 'mode')

  await brig.create({ name: 'ts-mounts', ttlMs: 60_000, volumes: ['ts-volume:/data', { name: made.id, path: '/in', read_only: true }] })
  const shell = await brig.exec('ts-mounts', 'echo one > /data/one; cat /in/one; touch /in/two || echo kept')
  assert.equal(shell.stdout, 'one\nkept\n')
  assert.equal(await text('/one'), 'one\n')
  const run = await brig.run('print(open("/data/one").read())', { volumes: ['ts-volume:/data:ro'] })
  assert.equal(run.stdout, 'one\n\n')
  assert.equal((await rejects(brig.fork('ts-mounts', { volumes: [] }), BrigError)).field, 'volumes')
  await brig.pause('ts-mounts', { filesOnly: true })
  const [copy] = await brig.fork('ts-mounts', { volumes: ['ts-volume:/elsewhere'] })
  assert.deepEqual(copy.volumes, [{ name: 'ts-volume', path: '/elsewhere', id: made.id }])
  for (const { name } of [copy, { name: 'ts-mounts' }]) await brig.remove(name)
  for (const [field, volumes] of Object.entries({ 'volumes[0].name': ['no-volume:/a'], 'volumes[0].path': ['ts-volume:/proc/x'] })) {
    assert.equal((await rejects(brig.create({ volumes }), BrigError)).field, field)
    assert.equal((await rejects(brig.run('1', { volumes }), BrigError)).field, field)
  }
  for (const wrong of ['data', 'data:/a:wr', 'data:/a:/b']) {
    assert.throws(() => brig.create({ volumes: [wrong] }), (e) => e instanceof BrigError && e.field === 'volumes')
  }
  await brig.removeVolume('ts-volume')
  assert.equal((await rejects(brig.getVolume('ts-volume'), BrigError)).code, 'SB013')
})

check('processes, commands and contexts of a sandbox', async () => {
  await brig.create({ name: 'ts-inside', ttlMs: 60_000 })
  const { pid } = await brig.startProcess('ts-inside', 'read line; echo got $line; exit 6', { tag: 'one' })
  assert.deepEqual((await brig.listProcesses('ts-inside')).map((p) => [p.pid, p.tag, p.running]), [[pid, 'one', true]])
  await brig.writeInput('ts-inside', pid, 'hello\n')
  await brig.closeInput('ts-inside', pid)
  let out = ''
  assert.equal((await brig.attachProcess('ts-inside', pid)).exit_code, 6)
  const ended = await brig.attachProcess('ts-inside', pid, { offset: 4, onStdout: (text) => (out += text) })
  assert.deepEqual([ended.exit_code, out], [6, 'hello\n'])
  const tty = await brig.startProcess('ts-inside', ['sh', '-c', 'trap "stty size; exit" WINCH; echo up; while :; do sleep 0.1; done'], { terminal: { rows: 24, columns: 80 } })
  out = ''
  const over = brig.attachProcess('ts-inside', tty.pid, { onStdout: (text) => (out += text) })
  await eventually(() => out.includes('up'), 'the program begins')
  await brig.resizeTerminal('ts-inside', tty.pid, { rows: 40, columns: 100 })
  assert.equal((await over).exit_code, 0)
  assert.match(out, /40 100/)
  const loop = await brig.startProcess('ts-inside', ['sleep', '100'])
  await brig.signalProcess('ts-inside', loop.pid, 'SIGKILL')
  assert.equal((await brig.attachProcess('ts-inside', loop.pid)).signal, 'SIGKILL')

  const last = await brig.exec('ts-inside', 'od -An -tx1', { stdin: new Uint8Array([255]), survive: true })
  assert.equal((await brig.getExec('ts-inside', last.exec)).stdout, last.stdout)
  assert.ok((await brig.listExecs('ts-inside')).some((e) => e.exec === last.exec))

  await brig.runCode('ts-inside', 'r = 2')
  const values = []
  const code = await brig.runCode('ts-inside', 'print("p"); display("shown"); r * 21', { onStdout: (text) => (out = text), onResult: (v) => values.push(v.data['text/plain']) })
  assert.deepEqual([code.text, out, values], ['42', 'p\n', ["'shown'", '42']])
  const context = await brig.createContext('ts-inside', { language: 'python', env: { X: '1' } })
  assert.ok((await brig.listContexts('ts-inside')).some((c) => c.id === context.id))
  const busy = brig.runCode('ts-inside', 'import time; kept = 1; time.sleep(60)', { contextId: context.id })
  await eventually(async () => (await brig.listContexts('ts-inside')).find((c) => c.id === context.id).state === 'busy', 'the code runs')
  await brig.interruptContext('ts-inside', context.id)
  assert.equal((await busy).error.name, 'KeyboardInterrupt')
  await brig.restartContext('ts-inside', context.id)
  assert.equal((await brig.runCode('ts-inside', 'kept', { contextId: context.id })).error.name, 'NameError')
  await brig.removeContext('ts-inside', context.id)
  await brig.remove('ts-inside')
})

check('errors', async () => {
  const wrong = await rejects(brig.create({ limits: { memory: 1 } }), BrigError)
  assert.deepEqual([wrong.code, wrong.field, wrong.status], ['SB010', 'limits.memory', 400])
  assert.ok(wrong.hint)
  assert.equal((await rejects(brig.remove('no-such'), BrigError)).code, 'SB013')
  assert.equal((await rejects(new Brig({ key: 'brig_no' }).create(), BrigError)).kind, 'unauthenticated')
  assert.equal((await rejects(new Brig({ url: 'http://127.0.0.1:1' }).create(), BrigError)).code, 'SB003')
})

await run()
