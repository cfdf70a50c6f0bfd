// A fork beyond the tenant's quota of three sandboxes, with the E2B SDK.
import { assert, check, run } from './harness.mjs'

const { Sandbox } = await import(process.env.E2B_MODULE ?? 'e2b')

check('fork beyond the quota', async () => {
  const box = await Sandbox.create({ timeoutMs: 600_000 })
  await box.files.write('kept.txt', 'kept')
  const copies = await box.fork({ count: 4, timeoutMs: 120_000 })
  assert.equal(copies.length, 4)
  for (const copy of copies.slice(0, 2)) {
    assert.equal(await copy.files.read('kept.txt'), 'kept')
  }
  for (const failed of copies.slice(2)) {
    assert.equal(failed.constructor.name, 'RateLimitError', `${failed}`)
    assert.match(failed.message, /do not allow more sandboxes/)
  }
  for (const b of [box, copies[0], copies[1]]) await b.kill()
})

await run()
