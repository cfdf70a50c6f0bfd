// Pause and resume with the E2B SDK: by call, at the end of the lease, and by
// traffic.
import { assert, check, eventually, rejects, run } from './harness.mjs'
import { Sandbox as Interpreter } from '@e2b/code-interpreter'

const { Sandbox, SandboxNotFoundError } = await import(process.env.E2B_MODULE ?? 'e2b')

const metadata = { suite: 'pause', 'with space': 'a=b' }
const state = async (id) => (await Sandbox.getInfo(id)).state
const ids = async (query) => {
  const pages = Sandbox.list({ query: { metadata: { suite: 'pause' }, ...query } })
  return (await pages.nextItems()).map((s) => s.sandboxId)
}

check('pause and connect', async () => {
  const box = await Sandbox.create({ timeoutMs: 600_000, metadata, envs: { GLOBAL: 'g' } })
  await box.files.write('kept.txt', 'kept')
  await box.commands.run('echo in memory >/dev/shm/kept')
  const sleep = await box.commands.run('sleep 3600', { background: true })
  assert.equal(await box.pause(), true)
  assert.equal(await box.isRunning(), false)
  const paused = await box.getInfo()
  assert.deepEqual([paused.state, paused.metadata, paused.sandboxId], ['paused', metadata, box.sandboxId])
  assert.equal(await box.pause(), false)
  assert.deepEqual(await ids({ state: ['paused'] }), [box.sandboxId])
  assert.deepEqual(await ids({ state: ['running'] }), [])
  assert.deepEqual(await ids({}), [box.sandboxId])
  await rejects(box.commands.run('true'), SandboxNotFoundError)
  assert.equal(await state(box.sandboxId), 'paused')
  await rejects(Sandbox.setTimeout(box.sandboxId, 60_000), SandboxNotFoundError)

  const again = await Sandbox.connect(box.sandboxId, { timeoutMs: 300_000 })
  assert.equal(again.sandboxId, box.sandboxId)
  const info = await again.getInfo()
  assert.deepEqual([info.state, info.metadata], ['running', metadata])
  const left = info.endAt - Date.now()
  assert.ok(left > 100_000 && left <= 300_000, `${left} ms are left`)
  assert.ok((await again.commands.list()).some((p) => p.pid === sleep.pid))
  assert.equal((await box.commands.run('cat kept.txt /dev/shm/kept; echo $GLOBAL')).stdout, 'keptin memory\ng\n')
  assert.equal(await box.commands.kill(sleep.pid), true)
  await box.kill()
})

check('pause again and again, and kill', async () => {
  const box = await Sandbox.create({ timeoutMs: 600_000, metadata })
  for (let n = 1; n <= 3; n++) {
    await box.files.write(`file-${n}`, `${n}`)
    await Sandbox.pause(box.sandboxId)
    await Sandbox.connect(box.sandboxId)
    assert.equal((await box.commands.run('cat file-* | wc -c')).stdout.trim(), `${n}`)
  }
  await box.pause()
  assert.equal(await Sandbox.kill(box.sandboxId), true)
  assert.equal(await Sandbox.kill(box.sandboxId), false)
  await rejects(Sandbox.connect(box.sandboxId), SandboxNotFoundError)
  await rejects(Sandbox.pause(box.sandboxId), SandboxNotFoundError)
  assert.deepEqual(await ids({}), [])
})

check('pause on timeout', async () => {
  const box = await Sandbox.create({ timeoutMs: 3000, metadata, lifecycle: { onTimeout: 'pause' } })
  assert.deepEqual((await box.getInfo()).lifecycle, { onTimeout: 'pause', autoResume: false })
  await box.files.write('kept.txt', 'kept')
  await eventually(async () => (await state(box.sandboxId)) === 'paused', 'it pauses at the end')
  await rejects(box.commands.run('true'), SandboxNotFoundError)
  assert.equal(await state(box.sandboxId), 'paused')
  const again = await Sandbox.connect(box.sandboxId, { timeoutMs: 3000 })
  assert.equal(await again.files.read('kept.txt'), 'kept')
  await eventually(async () => (await state(box.sandboxId)) === 'paused', 'it pauses again')
  await box.kill()
})

check('traffic resumes', async () => {
  const box = await Sandbox.create({ timeoutMs: 600_000, metadata, lifecycle: { onTimeout: 'pause', autoResume: true } })
  assert.deepEqual((await box.getInfo()).lifecycle, { onTimeout: 'pause', autoResume: true })
  await box.pause()
  assert.equal(await state(box.sandboxId), 'paused')
  const results = await Promise.all(Array.from({ length: 10 }, (_, i) => box.commands.run(`echo ${i}`)))
  assert.deepEqual(results.map((r) => r.stdout), Array.from({ length: 10 }, (_, i) => `${i}\n`))
  assert.equal(await state(box.sandboxId), 'running')
  await box.pause()
  assert.equal(await box.isRunning(), true)
  assert.equal(await state(box.sandboxId), 'running')
  await box.kill()
})

check('code keeps its variables', async () => {
  const box = await Interpreter.create({ timeoutMs: 600_000, metadata })
  await box.runCode('x = 41\nimport subprocess\nchild = subprocess.Popen(["sleep", "1000"])')
  const own = await box.createCodeContext({ language: 'javascript' })
  await box.runCode('let y = 1', { context: own })
  await box.pause()
  await Interpreter.connect(box.sandboxId)
  assert.equal((await box.runCode('x + 1 if child.poll() is None else 0')).text, '42')
  assert.equal((await box.runCode('y + 1', { context: own })).text, '2')
  await box.kill()
})

run()
