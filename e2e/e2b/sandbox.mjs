// The E2B SDK: sandboxes, commands, files, terminals, lists.
import { assert, check, eventually, rejects, run, sleep } from './harness.mjs'

const { Sandbox, SandboxNotFoundError, TimeoutError, CommandExitError, InvalidArgumentError, AuthenticationError, FileType, FilesystemEventType, ...rest } = await import(process.env.E2B_MODULE ?? 'e2b')
// The error for a missing file has had several names.
const FileNotFoundError = rest.FileNotFoundError ?? rest.NotFoundError

const box = await Sandbox.create({ timeoutMs: 600_000, metadata: { suite: 'sandbox' }, envs: { GLOBAL: 'g' } })

check('create', async () => {
  assert.match(box.sandboxId, /^[a-z0-9]+$/)
  assert.equal(await box.isRunning(), true)
  const info = await box.getInfo()
  assert.equal(info.sandboxId, box.sandboxId)
  assert.equal(info.state, 'running')
  assert.deepEqual(info.metadata, { suite: 'sandbox' })
  assert.ok(info.endAt > new Date(Date.now() + 500_000))
  assert.ok(info.cpuCount >= 1 && info.memoryMB >= 64)
})

check('commands: foreground', async () => {
  const r = await box.commands.run('echo "hi there"; echo oops >&2')
  assert.deepEqual([r.exitCode, r.stdout, r.stderr], [0, 'hi there\n', 'oops\n'])
  const err = await rejects(box.commands.run('echo out; exit 3'), CommandExitError)
  assert.deepEqual([err.exitCode, err.stdout], [3, 'out\n'])
})

check('commands: env, cwd, user', async () => {
  const r = await box.commands.run('echo $GLOBAL $LOCAL $PWD $(whoami) $HOME $E2B_SANDBOX', { envs: { LOCAL: 'l' }, cwd: '/tmp' })
  assert.equal(r.stdout, 'g l /tmp user /home/user true\n')
  assert.equal((await box.commands.run('pwd')).stdout, '/home/user\n')
  assert.equal((await box.commands.run('whoami; pwd', { user: 'root' })).stdout, 'root\n/root\n')
  await rejects(box.commands.run('true', { cwd: '/nowhere' }), InvalidArgumentError, /cwd.*nowhere/)
  await rejects(box.commands.run('true', { user: 'nobody-here' }), 'AuthenticationError', /nobody-here/)
})

check('commands: streams as it happens', async () => {
  // The command ends only if its first line arrives while it runs.
  const heard = []
  const r = await box.commands.run('echo first; until [ -e /tmp/heard ]; do sleep 0.05; done; echo last', {
    onStdout: async (s) => {
      heard.push(s)
      if (heard.length === 1) await box.files.write('/tmp/heard', '')
    },
  })
  assert.equal(r.stdout, 'first\nlast\n')
  assert.equal(heard.join(''), 'first\nlast\n')
})

check('commands: background, stdin, list, connect, kill', async () => {
  const cmd = await box.commands.run('cat; echo end', { background: true, stdin: true })
  assert.ok(cmd.pid > 1)
  await box.commands.sendStdin(cmd.pid, 'some input\n')
  await eventually(() => cmd.stdout === 'some input\n', 'cat answers')
  const list = await box.commands.list()
  assert.ok(list.some((p) => p.pid === cmd.pid && p.args.includes('cat; echo end')))
  await box.commands.closeStdin?.(cmd.pid)
  if (box.commands.closeStdin) {
    assert.equal((await cmd.wait()).stdout, 'some input\nend\n')
  }
  const long = await box.commands.run('for i in $(seq 100); do echo $i; sleep 0.1; done', { background: true })
  await long.disconnect()
  const again = await box.commands.connect(long.pid)
  await eventually(() => again.stdout.length > 0, 'output comes after a reconnect')
  assert.equal(await box.commands.kill(long.pid), true)
  await rejects(again.wait(), CommandExitError)
  assert.equal(await box.commands.kill(long.pid), false)
  const other = await box.commands.run('sleep 1000', { background: true })
  assert.equal(await other.kill(), true)
  assert.equal((await box.commands.run(`kill -0 ${other.pid} 2>/dev/null && echo there || echo gone`)).stdout, 'gone\n')
})

check('commands: timeout', async () => {
  const begin = Date.now()
  await rejects(box.commands.run('sleep 20', { timeoutMs: 1000 }), TimeoutError)
  assert.ok(Date.now() - begin < 15_000)
  await eventually(async () => (await box.commands.run('pgrep -fx "sleep 20" || true')).stdout === '', 'it is killed')
})

check('commands: a lot of output', async () => {
  const r = await box.commands.run('head -c 20000000 /dev/zero | tr "\\0" x')
  assert.equal(r.stdout.length, 20_000_000)
})

check('commands: unicode and binary', async () => {
  const r = await box.commands.run(`printf 'gr\\303\\274n \\360\\237\\230\\200'`)
  assert.equal(r.stdout, 'grün 😀')
})

check('files: write and read', async () => {
  const info = await box.files.write('a.txt', 'hello')
  assert.equal(info.path, '/home/user/a.txt')
  assert.equal(await box.files.read('a.txt'), 'hello')
  assert.equal(Buffer.from(await box.files.read('a.txt', { format: 'bytes' })).toString(), 'hello')
  assert.equal(await (await box.files.read('a.txt', { format: 'blob' })).text(), 'hello')
  let text = ''
  for await (const part of await box.files.read('a.txt', { format: 'stream' })) text += Buffer.from(part).toString()
  assert.equal(text, 'hello')
  assert.equal((await box.commands.run('stat -c "%U %a" a.txt')).stdout, 'user 644\n')
  await box.files.write('/home/user/deep/er/b.txt', 'x'.repeat(3_000_000))
  assert.equal((await box.files.read('deep/er/b.txt')).length, 3_000_000)
  await box.files.write('a.txt', '')
  assert.equal(await box.files.read('a.txt'), '')
  await box.files.write('root.txt', 'r', { user: 'root' })
  assert.equal((await box.commands.run('stat -c %U /root/root.txt', { user: 'root' })).stdout, 'root\n')
  await rejects(box.files.read('missing.txt'), FileNotFoundError, /missing/)
  const bytes = new Uint8Array(100_000).map((_, i) => i % 251)
  await box.files.write('bin', bytes.buffer)
  assert.deepEqual(new Uint8Array(await box.files.read('bin', { format: 'bytes' })), bytes)
  await box.files.write('blob', new Blob(['blobbed']))
  assert.equal(await box.files.read('blob'), 'blobbed')
})

check('files: write many', async () => {
  const infos = await box.files.write([
    { path: 'many/one.txt', data: '1' },
    { path: '/tmp/two.txt', data: '2' },
    { path: 'many/three.txt', data: '3' },
  ])
  assert.deepEqual(infos.map((i) => i.path), ['/home/user/many/one.txt', '/tmp/two.txt', '/home/user/many/three.txt'])
  assert.equal(await box.files.read('/tmp/two.txt'), '2')
})

check('files: list, info, exists, makeDir, rename, remove', async () => {
  assert.equal(await box.files.makeDir('dir/sub'), true)
  assert.equal(await box.files.makeDir('dir/sub'), false)
  await box.files.write('dir/f.txt', 'four')
  await box.commands.run('ln -s f.txt dir/link')
  const list = await box.files.list('dir')
  assert.deepEqual(list.map((e) => [e.name, e.type]).sort(), [['f.txt', FileType.FILE], ['link', FileType.FILE], ['sub', FileType.DIR]].sort().map(([n, t]) => (n === 'link' ? [n, list.find((e) => e.name === 'link').type] : [n, t])))
  assert.equal((await box.files.list('.', { depth: 3 })).some((e) => e.path === '/home/user/dir/sub'), true)
  const info = await box.files.getInfo('dir/f.txt')
  assert.deepEqual([info.name, info.path, info.type, Number(info.size), info.mode, info.permissions, info.owner, info.group], ['f.txt', '/home/user/dir/f.txt', FileType.FILE, 4, 0o644, '-rw-r--r--', 'user', 'user'])
  assert.ok(Math.abs(info.modifiedTime - Date.now()) < 60_000)
  assert.equal((await box.files.getInfo('dir/link')).symlinkTarget, '/home/user/dir/f.txt')
  assert.equal(await box.files.exists('dir/f.txt'), true)
  const moved = await box.files.rename('dir/f.txt', 'dir/g.txt')
  assert.equal(moved.path, '/home/user/dir/g.txt')
  assert.equal(await box.files.exists('dir/f.txt'), false)
  await box.files.remove('dir')
  assert.equal(await box.files.exists('dir'), false)
  await rejects(box.files.list('dir'), FileNotFoundError)
  await rejects(box.files.getInfo('dir'), FileNotFoundError)
})

check('files: watch', async () => {
  await box.files.makeDir('watched/inner')
  const events = []
  const handle = await box.files.watchDir('watched', (e) => events.push(e), { recursive: true })
  await box.files.write('watched/new.txt', 'x')
  await box.files.write('watched/inner/deep.txt', 'y')
  await eventually(() => events.some((e) => e.name === 'new.txt' && e.type === FilesystemEventType.CREATE), 'a new file is seen')
  await eventually(() => events.some((e) => e.name === 'new.txt' && e.type === FilesystemEventType.WRITE), 'its content is seen')
  await eventually(() => events.some((e) => e.name === 'inner/deep.txt'), 'what is below is seen')
  await box.files.remove('watched/new.txt')
  await eventually(() => events.some((e) => e.name === 'new.txt' && e.type === FilesystemEventType.REMOVE), 'its end is seen')
  await handle.stop()
  await rejects(box.files.watchDir('nowhere', () => {}), FileNotFoundError)
})

check('files: signed urls', async () => {
  await box.files.write('signed.txt', 'by url')
  const url = await box.downloadUrl('signed.txt')
  const got = await fetch(url)
  assert.equal(got.status, 200)
  assert.equal(await got.text(), 'by url')
  const up = await box.uploadUrl('up.txt')
  const form = new FormData()
  form.append('file', new Blob(['uploaded']), 'up.txt')
  const put = await fetch(up, { method: 'POST', body: form })
  assert.equal(put.status, 200, await put.clone().text())
  assert.equal(await box.files.read('up.txt'), 'uploaded')
  const forged = new URL(url)
  forged.searchParams.set('path', '/etc/passwd')
  assert.equal((await fetch(forged)).status, 401)
  const late = await box.downloadUrl('signed.txt', { useSignatureExpiration: 1 })
  await sleep(2100)
  assert.equal((await fetch(late)).status, 401)
})

check('pty', async () => {
  let out = ''
  const term = await box.pty.create({ cols: 80, rows: 24, onData: (d) => (out += Buffer.from(d).toString()), timeoutMs: 0 })
  const say = (s) => box.pty.sendInput(term.pid, new TextEncoder().encode(s))
  await say('echo $((40+2)); stty size\n')
  await eventually(() => out.includes('42') && out.includes('24 80'), 'the shell answers')
  await box.pty.resize(term.pid, { cols: 100, rows: 30 })
  await say('stty size\n')
  await eventually(() => out.includes('30 100'), 'the terminal is resized')
  if (box.pty.connect) {
    let more = ''
    const again = await box.pty.connect(term.pid, { onData: (d) => (more += Buffer.from(d).toString()) })
    await say('echo again\n')
    await eventually(() => more.includes('again') && out.includes('again'), 'both see it')
    await again.disconnect()
  }
  assert.equal(await box.pty.kill(term.pid), true)
  await rejects(term.wait(), CommandExitError)
})

check('metrics and logs do not fail', async () => {
  assert.ok(Array.isArray(await box.getMetrics()))
})

check('connect', async () => {
  const other = await Sandbox.connect(box.sandboxId)
  assert.equal((await other.commands.run('echo same')).stdout, 'same\n')
  await rejects(Sandbox.connect('sbnonesuch'), SandboxNotFoundError)
})

check('list: metadata, state, pages', async () => {
  const tag = `t${Date.now()}`
  const made = []
  for (const i of [0, 1, 2]) made.push(await Sandbox.create({ metadata: { tag, 'a key': `v&${i}` }, timeoutMs: 300_000 }))
  try {
    const seen = []
    const pages = Sandbox.list({ query: { metadata: { tag } }, limit: 2 })
    while (pages.hasNext) {
      const page = await pages.nextItems()
      assert.ok(page.length <= 2)
      seen.push(...page)
    }
    assert.deepEqual(seen.map((s) => s.sandboxId), made.map((s) => s.sandboxId).reverse())
    const one = await Sandbox.list({ query: { metadata: { tag, 'a key': 'v&1' } } }).nextItems()
    assert.deepEqual(one.map((s) => [s.sandboxId, s.metadata['a key']]), [[made[1].sandboxId, 'v&1']])
    assert.deepEqual(await Sandbox.list({ query: { metadata: { tag: 'none' } } }).nextItems(), [])
  } finally {
    await Promise.all(made.map((s) => s.kill()))
  }
})

check('timeout', async () => {
  const short = await Sandbox.create({ timeoutMs: 4000 })
  assert.equal(await short.isRunning(), true)
  await short.commands.run('echo busy') // which does not renew it
  await eventually(async () => !(await short.isRunning()), 'it ends by itself')
  const longer = await Sandbox.create({ timeoutMs: 4000 })
  await longer.setTimeout(60_000)
  await sleep(4500)
  assert.equal(await longer.isRunning(), true)
  await longer.setTimeout(1000)
  await eventually(async () => !(await longer.isRunning()), 'it can be cut short')
  await rejects(longer.setTimeout(1000), SandboxNotFoundError)
})

check('kill', async () => {
  const doomed = await Sandbox.create()
  const running = doomed.commands.run('sleep 1000', { timeoutMs: 0 }).catch((e) => e)
  await sleep(300)
  assert.equal(await doomed.kill(), true)
  const err = await running
  assert.equal(err.constructor.name, 'TimeoutError', `${err}`)
  assert.match(err.message, /killed or reached its end of life/)
  assert.equal(await doomed.isRunning(), false)
  assert.equal(await doomed.kill(), false)
  await rejects(doomed.commands.run('true'), SandboxNotFoundError)
  await rejects(doomed.getInfo(), SandboxNotFoundError)
})

check('a key that nobody has', async () => {
  await rejects(Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(40) }), AuthenticationError)
})

check('a template that there is not', async () => {
  await rejects(Sandbox.create('no-such-template'), 'SandboxError', /404.*no-such-template.*not found/)
})

check('git, which is shell commands', async () => {
  if (!box.git || (await box.commands.run('command -v git || true')).stdout === '') return
  await box.git.init('/home/user/repo')
  assert.equal(await box.files.exists('repo/.git'), true)
})

check('many at once', async () => {
  const all = await Promise.all(Array.from({ length: 100 }, (_, i) => box.commands.run(`echo ${i}`)))
  assert.deepEqual(all.map((r) => r.stdout), all.map((_, i) => `${i}\n`))
})

check('end', async () => assert.equal(await box.kill(), true))

await run()
