// Volumes with the E2B SDK.
import { assert, check, run } from './harness.mjs'

const { Sandbox, Volume } = await import(process.env.E2B_MODULE ?? 'e2b')

// Older versions of the SDK have one class for all missing things.
const missing = { name: /NotFound/ }
const shell = async (box, command) => (await box.commands.run(command)).stdout.trim()
const withVolume = async (name, use) => {
  const volume = await Volume.create(name)
  try {
    await use(volume)
  } finally {
    await Volume.destroy(volume.volumeId)
  }
}

check('volumes', async () => {
  const volume = await Volume.create('js-one')
  assert.equal(volume.name, 'js-one')
  assert.ok(volume.volumeId && volume.token)
  await assert.rejects(Volume.create('js-one'), /exists/)
  await assert.rejects(Volume.create('no/name'), /name/)
  assert.deepEqual((await Volume.list()).map((v) => v.name), ['js-one'])
  const info = await Volume.getInfo(volume.volumeId)
  assert.deepEqual([info.volumeId, info.name, info.token], [volume.volumeId, 'js-one', volume.token])
  const connected = await Volume.connect(volume.volumeId)
  await connected.writeFile('/a', 'text')
  assert.equal(await volume.readFile('/a'), 'text')
  assert.equal(await Volume.destroy(volume.volumeId), true)
  assert.equal(await Volume.destroy(volume.volumeId), false)
  await assert.rejects(Volume.getInfo(volume.volumeId), missing)
  await assert.rejects(volume.readFile('/a'), missing)
  assert.deepEqual(await Volume.list(), [])
})

check('files', () => withVolume('js-files', async (volume) => {
  const written = await volume.writeFile('/test.txt', 'Hello, World!')
  assert.deepEqual([written.name, written.path, written.type, written.size], ['test.txt', '/test.txt', 'file', 13])
  assert.ok(written.mtime instanceof Date && written.ctime instanceof Date)
  const bytes = Uint8Array.from({ length: 70_000 }, (_, i) => i % 251)
  await volume.writeFile('bytes', bytes.buffer)
  assert.deepEqual(await volume.readFile('bytes', { format: 'bytes' }), bytes)
  await volume.writeFile('/blob', new Blob(['blob']))
  assert.equal(await (await volume.readFile('/blob', { format: 'blob' })).text(), 'blob')
  await volume.writeFile('/stream', new Blob(['stream']).stream())
  assert.equal(await new Response(await volume.readFile('/stream', { format: 'stream' })).text(), 'stream')
  await volume.writeFile('/empty', '')
  assert.equal(await volume.readFile('/empty'), '')
  await assert.rejects(volume.writeFile('/test.txt', 'new'), /exists/)
  await volume.writeFile('/test.txt', 'new', { force: true })
  assert.equal(await volume.readFile('/test.txt'), 'new')
  await volume.writeFile('/owned', 'x', { uid: 1001, gid: 1002, mode: 0o600 })
  let info = await volume.getInfo('/owned')
  assert.deepEqual([info.type, info.uid, info.gid, info.mode], ['file', 1001, 1002, 0o600])
  info = await volume.updateMetadata('/owned', { uid: 7, mode: 0o755 })
  assert.deepEqual([info.path, info.uid, info.gid, info.mode], ['/owned', 7, 1002, 0o755])
  await assert.rejects(volume.updateMetadata('/none', { mode: 0o644 }), missing)
  await assert.rejects(volume.readFile('/none'), missing)
  await assert.rejects(volume.writeFile('/no/file', ''), missing)
  assert.equal(await volume.exists('/none'), false)
  assert.equal(await volume.exists('/owned'), true)
}))

check('directories', () => withVolume('js-dirs', async (volume) => {
  const made = await volume.makeDir('/d', { uid: 1000, gid: 1000, mode: 0o755 })
  assert.deepEqual([made.type, made.path, made.uid, made.mode & 0o777], ['directory', '/d', 1000, 0o755])
  await assert.rejects(volume.makeDir('/a/b/c'), missing)
  await volume.makeDir('/a/b/c', { force: true })
  await volume.makeDir('/a/b/c', { force: true })
  await assert.rejects(volume.makeDir('/a/b/c'), /exists/)
  await volume.writeFile('/a/b/c/file', 'x')
  assert.deepEqual((await volume.list('/')).map((e) => e.name).sort(), ['a', 'd'])
  assert.deepEqual((await volume.list('/a', { depth: 3 })).map((e) => e.path), ['/a/b', '/a/b/c', '/a/b/c/file'])
  await assert.rejects(volume.list('/none'), missing)
  await volume.remove('/a', { recursive: true })
  assert.equal(await volume.exists('/a'), false)
  await assert.rejects(volume.remove('/a'), missing)
}))

check('mounts', () => withVolume('js-shared', async (volume) => {
  await volume.writeFile('/hello.txt', 'from the API')
  const one = await Sandbox.create({ timeoutMs: 60_000, volumeMounts: { '/mnt/data': volume } })
  const two = await Sandbox.create({ timeoutMs: 60_000, volumeMounts: { '/mnt/data': 'js-shared' } })
  try {
    assert.equal(await shell(one, 'cat /mnt/data/hello.txt'), 'from the API')
    await one.files.write('/mnt/data/one.txt', 'from one')
    assert.equal(await two.files.read('/mnt/data/one.txt'), 'from one')
    await shell(two, 'mkdir /mnt/data/sub && echo from two > /mnt/data/sub/two.txt')
    assert.equal(await shell(one, 'cat /mnt/data/sub/two.txt; stat -c %U /mnt/data/sub/two.txt'), 'from two\nuser')
    assert.equal(await volume.readFile('/sub/two.txt'), 'from two\n')
    await shell(one, 'rm -r /mnt/data/sub')
    assert.equal(await shell(two, 'ls /mnt/data'), 'hello.txt\none.txt')
    const listed = (await Sandbox.list().nextItems()).find((s) => s.sandboxId === one.sandboxId)
    assert.deepEqual(listed.volumeMounts ?? [{ name: 'js-shared', path: '/mnt/data' }], [{ name: 'js-shared', path: '/mnt/data' }])
  } finally {
    await one.kill()
    await two.kill()
  }
  const later = await Sandbox.create({ timeoutMs: 60_000, volumeMounts: { '/data': volume } })
  try {
    assert.equal(await shell(later, 'cat /data/one.txt'), 'from one')
  } finally {
    await later.kill()
  }
  await assert.rejects(Sandbox.create({ volumeMounts: { '/data': 'no-volume' } }), /no-volume/)
  await assert.rejects(Sandbox.create({ volumeMounts: { '/proc/x': volume } }), /proc/)
}))

check('pauses', () => withVolume('js-paused', async (volume) => {
  const box = await Sandbox.create({ timeoutMs: 120_000, volumeMounts: { '/data': volume } })
  try {
    await box.files.write('/data/kept', 'before')
    await box.commands.run('sh -c "exec 3>>/data/log; while sleep 0.2; do echo tick >&3; done"', { background: true })
    while (!(await volume.exists('/log'))) await new Promise((resolve) => setTimeout(resolve, 50))
    await box.pause()
    await volume.writeFile('/while-paused', 'meanwhile')
    const ticks = (await volume.readFile('/log')).length
    const again = await Sandbox.connect(box.sandboxId)
    assert.equal(await shell(again, 'cat /data/kept /data/while-paused'), 'beforemeanwhile')
    await new Promise((resolve) => setTimeout(resolve, 1000))
    assert.ok((await volume.readFile('/log')).length > ticks)
  } finally {
    await box.kill()
  }
}))

await run()
