// What the E2B SDK reads about a sandbox: its network rules, its usage over time, and its log.
import { assert, check, eventually, run } from './harness.mjs'

const { Sandbox } = await import(process.env.E2B_MODULE ?? 'e2b')
const api = process.env.E2B_API_URL
const call = async (path, method = 'GET', body = undefined) => {
  const res = await fetch(api + path, { method, body: body && JSON.stringify(body), headers: { 'X-API-Key': process.env.E2B_API_KEY } })
  const text = await res.text()
  return { status: res.status, data: text ? JSON.parse(text) : undefined }
}

check('network of a sandbox', async () => {
  const all = '0.0.0.0/0'
  for (const [options, internet, allowOut, denyOut] of [
    [{}, true, undefined, undefined],
    [{ allowInternetAccess: false }, false, undefined, [all]],
    [{ network: { denyOut: [all] } }, false, undefined, [all]],
    [{ network: { allowOut: ['1.1.1.1', '8.8.8.0/24', '*.example.com'], denyOut: [all] } }, false, ['1.1.1.1', '8.8.8.0/24', '*.example.com'], [all]],
    [{ network: { denyOut: ['8.8.8.8', '10.0.0.0/8'] } }, true, undefined, ['8.8.8.8', '10.0.0.0/8']],
    [{ network: { allowOut: [all], denyOut: [all] } }, true, [all], [all]],
  ]) {
    const box = await Sandbox.create({ timeoutMs: 60_000, ...options })
    const info = await box.getInfo()
    assert.deepEqual([info.allowInternetAccess, info.network?.allowOut, info.network?.denyOut], [internet, allowOut, denyOut], JSON.stringify(options))
    if (box.updateNetwork) {
      await box.updateNetwork({ allowOut: ['1.1.1.1'], denyOut: [all] })
      const updated = await box.getInfo()
      assert.deepEqual([updated.allowInternetAccess, updated.network.allowOut, updated.network.denyOut], [false, ['1.1.1.1'], [all]])
    }
    await box.kill()
  }
})

check('usage over time', async () => {
  const begin = new Date()
  const box = await Sandbox.create({ timeoutMs: 600_000 })
  await box.commands.run('head -c 50000000 /dev/zero > zeros; timeout 25 sh -c "while :; do :; done"', { background: true })
  let all = []
  await eventually(async () => (all = await box.getMetrics()).length >= 3, 'there are three samples', 60_000)
  for (let i = 1; i < all.length; i++) {
    const span = all[i].timestamp - all[i - 1].timestamp
    assert.ok(span > 1000 && span < 15_000, `${span} ms between samples`)
  }
  const last = all.at(-1)
  assert.ok(last.cpuUsedPct > 5 && last.cpuCount >= 1, JSON.stringify(last))
  assert.ok(last.memUsed > 0 && last.memTotal >= last.memUsed && last.diskUsed >= 50_000_000 && last.diskTotal > last.diskUsed, JSON.stringify(last))
  const middle = new Date(Math.ceil(all[1].timestamp / 1000) * 1000)
  assert.ok((await box.getMetrics({ end: middle })).length < (await box.getMetrics()).length)
  assert.ok((await box.getMetrics({ start: middle })).every((m) => m.timestamp >= middle))
  assert.deepEqual(await box.getMetrics({ end: new Date(begin - 3_600_000) }), [])
  const { data } = await call(`/sandboxes/metrics?sandbox_ids=${box.sandboxId}`)
  assert.ok(data.sandboxes[box.sandboxId].diskUsed >= 50_000_000)

  await (box.pause ?? box.betaPause).call(box)
  const paused = (await Sandbox.getMetrics(box.sandboxId)).length
  assert.ok(paused >= all.length)
  const again = await Sandbox.connect(box.sandboxId)
  await eventually(async () => (await again.getMetrics()).length > paused, 'samples continue after a pause', 60_000)
  await again.kill()
  assert.ok((await Sandbox.getMetrics(box.sandboxId)).length > paused)
})

check('usage of a team', async () => {
  const boxes = await Promise.all([1, 2, 3].map(() => Sandbox.create({ timeoutMs: 60_000 })))
  const { data: [team] } = await call('/teams')
  const max = async (metric) => (await call(`/teams/${team.teamID}/metrics/max?metric=${metric}`)).data.value
  await eventually(async () => (await max('concurrent_sandboxes')) >= 3 && (await max('sandbox_start_rate')) > 0, 'three sandboxes are counted')
  const { data: all } = await call(`/teams/${team.teamID}/metrics`)
  assert.ok(all.some((m) => m.concurrentSandboxes >= 3) && all.some((m) => m.sandboxStartRate > 0))
  assert.equal((await call('/teams/other/metrics')).status, 403)
  for (const b of boxes) await b.kill()
})

check('levels of log lines', async () => {
  const box = await Sandbox.create({ timeoutMs: 60_000 })
  await box.commands.run(`echo plain; echo '{"level":"error","message":"broken"}'; echo 'WARNING:root:careful' >&2; echo 'level=debug x'`)
  const messages = async (query) => (await call(`/v2/sandboxes/${box.sandboxId}/logs?${query}`)).data.logs.map((l) => [l.level, l.message])
  await eventually(async () => (await messages('level=debug')).length === 4, 'all lines are in the log')
  assert.deepEqual(await messages('level=error'), [['error', '{"level":"error","message":"broken"}']])
  assert.deepEqual((await messages('level=warn')).map(([l]) => l).sort(), ['error', 'warn'])
  assert.deepEqual((await messages('level=info&search=plain')), [['info', 'plain']])
  assert.deepEqual((await messages('limit=1&search=plain&direction=backward')), [['info', 'plain']])
  await box.kill()
})

check('namespaces and visibility of templates', async () => {
  const { data: [team] } = await call('/teams')
  const box = await Sandbox.create(`${team.name}/base`, { timeoutMs: 60_000 })
  assert.equal((await box.getInfo()).templateId, 'base')
  await box.kill()
  assert.equal((await call('/templates/base')).data.public, true)
  assert.deepEqual((await call('/v2/templates/base', 'PATCH', { public: true })).data, { names: ['base'] })
  assert.equal((await call('/v2/templates/base', 'PATCH', { public: false })).status, 400)
})

await run()
