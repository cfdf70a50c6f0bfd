// WebSockets to ports of sandboxes, with npm's client ws. BRIG_URL has the server's
// address, and the domain is E2B's.
import { readFile } from 'node:fs/promises'
import { Sandbox } from 'e2b'
import WebSocket from 'ws'
import { assert, check, eventually, rejects, run } from './harness.mjs'

const port = 8765
const program = await readFile(new URL('websocket.py', import.meta.url), 'utf8')

async function serve(options = {}) {
  const box = await Sandbox.create({ timeoutMs: 300_000, ...options })
  await box.files.write('websocket.py', program)
  await box.commands.run(`python3 websocket.py ${port}`, { background: true, timeoutMs: 0 })
  await box.commands.run(`python3 -c "import socket, time\nfor i in range(200):\n  try: socket.create_connection(('127.0.0.1', ${port})); break\n  except OSError: time.sleep(0.05)"`)
  return box
}

// The two addresses of a port.
const ways = {
  host: (box, to = port) => [`wss://${box.getHost(to)}/a/b?c=d`, {}],
  headers: (box, to = port) => [
    `${process.env.BRIG_URL.replace('http', 'ws')}/a/b?c=d`,
    { 'E2b-Sandbox-Id': box.sandboxId, 'E2b-Sandbox-Port': String(to) },
  ],
}

// Client is a connection that can wait for messages.
class Client {
  got = []
  constructor([url, headers], extra = {}, protocols = []) {
    this.ws = new WebSocket(url, protocols, { headers: { ...headers, ...extra } })
    this.ws.on('message', (data, binary) => this.got.push([data, binary]))
    this.closed = new Promise((done) => this.ws.on('close', (code, reason) => done([code, String(reason)])))
    this.opened = new Promise((done, fail) => {
      this.ws.on('open', done)
      this.ws.on('error', fail)
    })
  }
  async next() {
    await eventually(() => this.got.length > 0 || this.ws.readyState > 1, 'a message comes')
    assert.ok(this.got.length > 0, 'the connection has ended')
    return this.got.shift()
  }
  async echo(message) {
    this.ws.send(message)
    const [data, binary] = await this.next()
    assert.equal(binary, typeof message !== 'string')
    assert.ok(Buffer.from(message).equals(data), `${data.length} bytes came of ${message.length}`)
  }
}

async function open(...args) {
  const c = new Client(...args)
  await c.opened
  return [c, JSON.parse((await c.next())[0])]
}

const box = await serve()

for (const [way, to] of Object.entries(ways)) {
  check(`${way}: a hundred messages there and back`, async () => {
    const [c, asked] = await open(to(box), { Origin: 'https://example.com' }, ['chat', 'other'])
    assert.equal(asked.request, 'GET /a/b?c=d HTTP/1.1')
    assert.equal(asked.headers.origin, 'https://example.com')
    assert.equal(c.ws.protocol, 'chat')
    for (const name of Object.keys(asked.headers)) assert.ok(!name.startsWith('e2b-'), name)
    for (let i = 0; i < 100; i++) await c.echo(`message ${i} `.repeat(i + 1))
    for (const n of [0, 125, 126, 65535, 65536, 1 << 20]) await c.echo(Buffer.alloc(n, n))
    c.ws.ping('are you there')
    assert.equal(String((await new Promise((done) => c.ws.once('pong', done)))), 'are you there')
    c.ws.close(4000, 'bye')
    assert.deepEqual(await c.closed, [4000, 'bye'])
  })

  check(`${way}: a hundred each way at once`, async () => {
    const [c] = await open(to(box))
    c.ws.send('count 100')
    for (let i = 0; i < 100; i++) c.ws.send(`mine ${i}`)
    const got = []
    while (got.length < 200) got.push(String((await c.next())[0]))
    const all = (f) => Array.from({ length: 100 }, (_, i) => f(i))
    assert.deepEqual(got.filter((m) => !m.startsWith('mine')), all(String))
    assert.deepEqual(got.filter((m) => m.startsWith('mine')), all((i) => `mine ${i}`))
    c.ws.send('close')
    assert.deepEqual(await c.closed, [4001, 'enough'])
  })

  check(`${way}: nobody listens, or no WebSocket does`, async () => {
    await rejects(new Client(to(box, port + 1)).opened, 'Error', /502/)
    await box.commands.run('python3 -m http.server 8766', { background: true, timeoutMs: 0 })
    await eventually(async () => {
      const err = await new Client(to(box, port + 1)).opened.catch((err) => err)
      return /404/.test(err.message)
    }, 'what serves no WebSockets says so itself')
    await box.commands.run('pkill -f [h]ttp.server')
  })

  check(`${way}: a sandbox that is closed to the public`, async () => {
    const shut = await serve({ network: { allowPublicTraffic: false } })
    await rejects(new Client(to(shut)).opened, 'Error', /403/)
    await rejects(new Client(to(shut), { 'E2b-Traffic-Access-Token': 'wrong' }).opened, 'Error', /403/)
    const [c] = await open(to(shut), { 'E2b-Traffic-Access-Token': shut.trafficAccessToken })
    await c.echo('let in')
    await shut.kill()
    await c.closed
  })

  check(`${way}: a kill breaks it off`, async () => {
    const doomed = await serve()
    const clients = []
    for (let i = 0; i < 3; i++) clients.push((await open(to(doomed)))[0])
    const [other] = await open(to(box))
    for (const c of clients) await c.echo('alive')
    await doomed.kill()
    // The connection ends without a close frame, which clients report as 1006.
    for (const c of clients) {
      await eventually(() => c.ws.readyState === WebSocket.CLOSED, 'it ends')
      assert.equal((await c.closed)[0], 1006)
    }
    await other.echo('what is another sandbox\'s goes on')
    await rejects(new Client(to(doomed)).opened, 'Error', /502/)
    other.ws.terminate()
  })
}

await run()
