// The calls of an agent: it lists the tools, runs code that keeps variables, reads
// files that the code created, and cancels a slow call.
import { check, connect, generation, good, same } from './check.mjs'

const client = await connect()
const box = `mcp-${generation}-${process.env.BRIG_MCP_COMMAND ? 'stdio' : 'http'}`

await check('the tools are listed', async () => {
  const { tools } = await client.listTools()
  const names = tools.map(t => t.name)
  for (const n of ['run_code', 'run_shell', 'create_sandbox', 'read_file', 'http_request', 'list_images']) {
    if (!names.includes(n)) throw new Error(`there is no ${n} among ${names}`)
  }
  for (const t of tools) {
    if (t.inputSchema.type !== 'object' || !t.outputSchema || !t.description) throw new Error(`${t.name} is not described`)
  }
})

await check('a fresh sandbox runs code, and is gone', async () => {
  const first = await good(client, 'run_code', { code: 'def main(n):\n  open("/tmp/left", "w").write("x")\n  print("hi")\n  return n * 7', arguments: { n: 6 } })
  same([first.result, first.stdout, first.exit_code], [42, 'hi\n', 0])
  const second = await good(client, 'run_code', { code: 'import os\ndef main(): return os.path.exists("/tmp/left")', arguments: {} })
  same(second.result, false)
  same((await good(client, 'run_shell', { command: 'uname -r; exit 3' })).exit_code, 3)
})

await check('artifacts come back', async () => {
  const res = await client.tool('run_code', { code: 'import os\nos.makedirs("artifacts")\nopen("artifacts/a.csv","w").write("a,b\\n1,2\\n")' })
  same([res.structuredContent.artifacts, res.content[1].type, res.content[1].resource.text, res.content[1].resource.mimeType], [['a.csv'], 'resource', 'a,b\n1,2\n', 'text/csv'])
})

await check('a sandbox keeps variables from call to call', async () => {
  await good(client, 'create_sandbox', { name: box, ttl_seconds: 600, labels: { for: 'mcp' } })
  await good(client, 'run_code', { sandbox: box, code: 'x = 40' })
  same((await good(client, 'run_code', { sandbox: box, code: 'x + 2' })).result, '42')
  same((await good(client, 'list_sandboxes', { labels: { for: 'mcp' } })).sandboxes.map(s => s.name).includes(box), true)
  const other = await good(client, 'create_context', { sandbox: box, language: 'python' })
  const res = await client.tool('run_code', { sandbox: box, context: other.context, code: 'x' })
  same([res.isError ?? false, res.structuredContent.error.name], [false, 'NameError'])
})

await check('a file that code has made is read', async () => {
  await good(client, 'run_code', { sandbox: box, code: 'open("/workspace/out.txt", "w").write("six times seven")' })
  same((await good(client, 'read_file', { sandbox: box, path: '/workspace/out.txt' })).text, 'six times seven')
  const { contents } = await client.readResource({ uri: `brig://sandboxes/${box}/files/workspace/out.txt` })
  same([contents[0].text, contents[0].mimeType], ['six times seven', 'text/plain'])
  await good(client, 'write_file', { sandbox: box, path: '/workspace/in.bin', data_b64: 'AAH/' })
  same((await good(client, 'read_file', { sandbox: box, path: '/workspace/in.bin' })).data_b64, 'AAH/')
  const entries = (await good(client, 'list_files', { sandbox: box })).entries.map(e => [e.path, e.size])
  same(entries, [['/workspace/in.bin', 3], ['/workspace/out.txt', 15]])
})

await check('a shell, its log, and what resources there are', async () => {
  const res = await client.tool('run_shell', { sandbox: box, command: 'cat; echo bad >&2; exit 5', stdin: 'said\n' })
  same([res.structuredContent.stdout, res.structuredContent.stderr, res.structuredContent.exit_code], ['said\n', 'bad\n', 5])
  if (!(await good(client, 'read_log', { sandbox: box })).text.includes('said')) throw new Error('the log does not have it')
  const { resources } = await client.listResources()
  const log = resources.find(r => r.uri === `brig://sandboxes/${box}/log`)
  if (!(await client.readResource({ uri: log.uri })).contents[0].text.includes('said')) throw new Error('the resource does not have it')
  same((await client.listResourceTemplates()).resourceTemplates.length, 2)
})

await check('a server in the sandbox is called', async () => {
  const p = await good(client, 'start_process', { sandbox: box, command: 'exec python3 -u -m http.server 8080 --directory /workspace', tag: 'web' })
  for (let i = 0; ; i++) {
    const res = await client.tool('http_request', { sandbox: box, port: 8080, path: '/out.txt' })
    if (!res.isError) {
      same([res.structuredContent.status, res.structuredContent.text], [200, 'six times seven'])
      break
    }
    if (i === 50) throw new Error(res.content[0].text)
    await new Promise(r => setTimeout(r, 200))
  }
  if (!(await good(client, 'process_output', { sandbox: box, pid: p.pid, wait_seconds: 0.5 })).output.includes('GET /out.txt')) throw new Error('its output does not have it')
  await good(client, 'signal_process', { sandbox: box, pid: p.pid, signal: 'SIGKILL' })
  same((await good(client, 'process_output', { sandbox: box, pid: p.pid, wait_seconds: 10 })).running, false)
})

await check('progress is told while a program runs', async () => {
  for (const args of [{ sandbox: box }, {}]) {
    const told = []
    const onprogress = p => told.push([p.progress, p.message ?? ''])
    const out = await good(client, 'run_shell', { ...args, command: 'for i in 1 2 3; do echo step $i; sleep 0.6; done' }, { onprogress })
    same(out.stdout, 'step 1\nstep 2\nstep 3\n')
    if (told.length < 2 || !told.map(t => t[1]).join('').includes('step 2')) throw new Error(`it was told ${JSON.stringify(told)}`)
    for (let i = 1; i < told.length; i++) if (told[i][0] <= told[i - 1][0]) throw new Error(`it goes backwards: ${JSON.stringify(told)}`)
  }
})

await check('a sandbox is paused, copied and continued', async () => {
  await good(client, 'create_sandbox', { name: `${box}-origin`, ttl_seconds: 600, pausable: true, labels: { for: 'copies' } })
  const origin = await good(client, 'get_sandbox', { sandbox: `${box}-origin` })
  await good(client, 'run_code', { sandbox: origin.name, code: 'x = 40' })
  const { copies } = await good(client, 'fork_sandbox', { sandbox: origin.name, count: 2, ttl_seconds: 600 })
  same(copies.map(c => [c.state, c.origin, c.labels.for]), Array(2).fill(['running', origin.id, 'copies']))
  const kept = (await good(client, 'fork_sandbox', { sandbox: origin.name, name: `${box}-kept`, paused: true })).copies[0]
  const changes = { env: { TRY: 'b' }, allow_hosts: [], user: 'root', dir: '/etc', labels: { for: 'changes' }, pause_at_end: true }
  const [changed] = (await good(client, 'fork_sandbox', { sandbox: origin.name, ...changes })).copies
  same((await good(client, 'run_shell', { sandbox: changed.name, command: 'id -un; pwd; echo $TRY' })).stdout, 'root\n/etc\nb\n')
  same((await good(client, 'run_code', { sandbox: changed.name, code: 'x + 2' })).result, '42')
  await good(client, 'remove_sandbox', { sandbox: changed.name })
  const large = await client.tool('fork_sandbox', { sandbox: origin.name, memory_mib: 1024 })
  same([large.isError, large._meta['brig.run/error'].field], [true, 'memory_mib'])
  await good(client, 'run_code', { sandbox: origin.name, code: 'x = 0' })
  for (const c of copies) same((await good(client, 'run_code', { sandbox: c.name, code: 'x + 2' })).result, '42')
  const paused = await good(client, 'pause_sandbox', { sandbox: copies[0].name })
  same([paused.state, paused.saved_bytes > 0], ['paused', true])
  const list = (await good(client, 'list_sandboxes', { state: 'paused', labels: { for: 'copies' } })).sandboxes
  same(list.map(s => s.name).sort(), [copies[0].name, kept.name].sort())
  same((await good(client, 'list_sandboxes', { labels: { for: 'copies' } })).sandboxes.length, 4)
  same((await good(client, 'resume_sandbox', { sandbox: copies[0].name })).state, 'running')
  for (const name of [copies[0].name, kept.name]) same((await good(client, 'run_code', { sandbox: name, code: 'x + 2' })).result, '42')
  for (const { name } of [origin, kept, ...copies]) await good(client, 'remove_sandbox', { sandbox: name })
})

await check('what is wrong is said, and no protocol error', async () => {
  const res = await client.tool('run_code', { sandbox: 'nobodys', code: '1' })
  same([res.isError, res._meta['brig.run/error'].code], [true, 'SB013'])
  const typo = await client.tool('run_code', { kode: '1' })
  same([typo.isError, typo._meta['brig.run/error'].field], [true, 'kode'])
})

await check('a call is cancelled', async () => {
  const abort = new AbortController()
  // A file in the sandbox shows that the program has started. The host shows that it
  // has ended.
  const call = client.tool('run_shell', { sandbox: box, command: 'echo $$ > /workspace/begun; exec sleep 4711', timeout_seconds: 600 }, { signal: abort.signal })
  const ended = call.then(() => 'answered', err => `refused: ${err}`)
  for (let i = 0; ; i++) {
    const res = await client.tool('read_file', { sandbox: box, path: '/workspace/begun' })
    if (!res.isError && res.structuredContent.text) break
    if (i === 50) throw new Error('it does not begin')
    await new Promise(r => setTimeout(r, 100))
  }
  abort.abort('enough')
  const how = await ended
  if (!how.startsWith('refused')) throw new Error(how)
  // The client can continue.
  for (let i = 0; ; i++) {
    const { stdout } = await good(client, 'run_shell', { sandbox: box, command: "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep [4]711' || true" })
    if (stdout.trim() === '0') break
    if (i === 30) throw new Error(`it still runs: ${stdout}`)
    await new Promise(r => setTimeout(r, 100))
  }
})

await check('the end', async () => {
  await good(client, 'remove_sandbox', { sandbox: box })
  await client.transportOf.terminateSession?.()
  await client.close()
})
