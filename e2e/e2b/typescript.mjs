// Brig's TypeScript package.
import { createServer } from 'node:http'
import { assert, check, rejects, run } from './harness.mjs'

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
  await brig.setEgress('ts-box', ['other.example.com'])
  await brig.remove('ts-box')
  const again = await brig.run('print(open("f").read())', { workspace: 'ts-data' })
  assert.equal(again.stdout, 'kept\n\n')
  await brig.removeWorkspace('ts-data')
  await brig.removeSecret('ts-token')
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
