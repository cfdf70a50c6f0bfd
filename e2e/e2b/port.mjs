// Ports of sandboxes by host name, in wildcard mode.
import { Sandbox } from 'e2b'
import { assert, check, eventually, run } from './harness.mjs'

check('a server in a sandbox', async () => {
  const box = await Sandbox.create({ timeoutMs: 300_000 })
  await box.files.write('www/index.html', 'from inside')
  await box.commands.run('python3 -m http.server 8000 --bind 127.0.0.1 --directory www', { background: true, timeoutMs: 0 })
  const host = box.getHost(8000)
  assert.match(host, new RegExp(`^8000-${box.sandboxId}\\.`))
  let text = ''
  await eventually(async () => (text = await (await fetch(`${process.env.SCHEME ?? 'https'}://${host}/`)).text()) === 'from inside', `it answers (${text})`)
  const closed = await fetch(`${process.env.SCHEME ?? 'https'}://${box.getHost(8001)}/`)
  assert.equal(closed.status, 502)
  assert.match((await closed.json()).message, /port is not open/)
  await box.kill()
  const dead = await fetch(`${process.env.SCHEME ?? 'https'}://${host}/`)
  assert.equal(dead.status, 502)
  assert.match((await dead.json()).message, /not found/)
})

await run()
