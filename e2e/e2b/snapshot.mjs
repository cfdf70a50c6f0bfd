// Snapshots and forks with the E2B SDK.
import { assert, check, rejects, run } from './harness.mjs'
import { Sandbox as Interpreter } from '@e2b/code-interpreter'

const { Sandbox, SandboxNotFoundError, SandboxError } = await import(process.env.E2B_MODULE ?? 'e2b')

const random = 'python3 -c "import uuid; print(uuid.uuid4())"'
const shell = async (box, command) => (await box.commands.run(command)).stdout.trim()

check('fork', async () => {
  const box = await Sandbox.create({ timeoutMs: 600_000, metadata: { suite: 'fork' } })
  await box.files.write('kept.txt', 'kept')
  const sleep = await box.commands.run('sleep 3600', { background: true })
  const copies = await box.fork({ count: 3, timeoutMs: 120_000 })
  assert.equal(copies.length, 3)
  const ids = new Set([box.sandboxId, ...copies.map((c) => c.sandboxId)])
  assert.equal(ids.size, 4)
  const values = new Set()
  for (const copy of copies) {
    assert.equal(await copy.files.read('kept.txt'), 'kept')
    assert.ok((await copy.commands.list()).some((p) => p.pid === sleep.pid))
    assert.equal(await shell(copy, 'echo $E2B_SANDBOX_ID'), copy.sandboxId)
    await copy.files.write('kept.txt', copy.sandboxId)
    values.add(await shell(copy, random))
    const info = await copy.getInfo()
    const left = info.endAt - Date.now()
    assert.ok(left > 60_000 && left <= 120_000, `${left} ms are left`)
    assert.deepEqual(info.metadata, { suite: 'fork' })
  }
  assert.equal(values.size, 3)
  assert.equal(await box.files.read('kept.txt'), 'kept')
  const [one] = await Sandbox.fork(box.sandboxId)
  assert.equal(await shell(one, 'cat kept.txt'), 'kept')
  for (const b of [...copies, one, box]) assert.equal(await b.kill(), true)
  await rejects(Sandbox.fork(box.sandboxId), SandboxNotFoundError)
})

check('snapshots', async () => {
  const box = await Sandbox.create({ timeoutMs: 600_000, metadata: { suite: 'snapshot' } })
  await box.files.write('state.txt', 'one')
  const first = await box.createSnapshot()
  assert.deepEqual(first.names, [])
  await box.files.write('state.txt', 'two')
  const second = await box.createSnapshot({ name: 'ready' })
  assert.deepEqual(second.names, ['ready'])
  assert.notEqual(first.snapshotId, second.snapshotId)
  assert.equal(await shell(box, 'cat state.txt'), 'two')

  const listed = (page) => page.map((s) => s.snapshotId)
  assert.deepEqual(listed(await box.listSnapshots().nextItems()), [second.snapshotId, first.snapshotId])
  assert.deepEqual(listed(await Sandbox.listSnapshots({ limit: 1 }).nextItems()), [second.snapshotId])
  assert.equal((await Sandbox.list({ query: { metadata: { suite: 'snapshot' } } }).nextItems()).length, 1)

  await box.kill() // snapshots outlive the sandbox
  const values = new Set()
  for (const [template, want] of [[first.snapshotId, 'one'], [second.snapshotId, 'two'], ['ready', 'two'], [first.snapshotId, 'one']]) {
    const copy = await Sandbox.create(template, { timeoutMs: 60_000, metadata: { copy: 'yes' } })
    assert.equal(await shell(copy, 'cat state.txt'), want)
    values.add(await shell(copy, random))
    assert.deepEqual((await copy.getInfo()).metadata, { copy: 'yes' })
    await copy.files.write('state.txt', 'changed')
    await copy.kill()
  }
  assert.equal(values.size, 4)
  assert.equal(await Sandbox.deleteSnapshot(first.snapshotId), true)
  assert.equal(await Sandbox.deleteSnapshot(first.snapshotId), false)
  await rejects(Sandbox.create(first.snapshotId), SandboxError)
  assert.equal(await Sandbox.deleteSnapshot(second.snapshotId), true)
  assert.deepEqual(await Sandbox.listSnapshots().nextItems(), [])
})

check('variables of contexts', async () => {
  const box = await Interpreter.create({ timeoutMs: 600_000 })
  await box.runCode('x = 41')
  const snapshot = await box.createSnapshot()
  await box.runCode('x = 0')
  const copy = await Interpreter.create(snapshot.snapshotId, { timeoutMs: 60_000 })
  assert.equal((await copy.runCode('x + 1')).text, '42')
  const [fork] = await box.fork()
  assert.equal((await fork.runCode('x + 2')).text, '2')
  for (const b of [copy, fork, box]) await b.kill()
  await Interpreter.deleteSnapshot(snapshot.snapshotId)
})

run()
