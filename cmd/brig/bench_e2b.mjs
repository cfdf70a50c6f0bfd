// Measures an E2B client, for brig-bench e2b. Prints one JSON line per figure.
import { spawn } from 'node:child_process'
import { createRequire } from 'node:module'
import path from 'node:path'

const modules = createRequire(path.join(process.env.MODULES, 'package.json'))
const { Sandbox } = modules('e2b')
const rounds = Number(process.env.ROUNDS)
const megabytes = 32

const say = (name, figures) => console.log(JSON.stringify({ name, ...figures }))
const clock = async (f) => {
  const begin = performance.now()
  await f()
  return performance.now() - begin
}
const many = async (f) => {
  const out = []
  for (let i = 0; i < rounds; i++) out.push(await f())
  return out
}
const calm = () => new Promise((done) => setTimeout(done, 1000)) // until the pool is full again
// An empty home: a user's shell profile would distort the measurement.
const env = { PATH: '/usr/bin:/bin', HOME: '/nonexistent' }
const local = (...argv) =>
  new Promise((done, fail) => spawn(argv[0], argv.slice(1), { stdio: 'ignore', env }).on('error', fail).on('close', done))

const first = [], created = [], bare = []
for (let i = 0; i < rounds; i++) {
  await calm()
  let box
  const begin = performance.now()
  box = await Sandbox.create()
  created.push(performance.now() - begin)
  await box.commands.run('echo hi')
  first.push(performance.now() - begin)
  await box.kill()
  bare.push(await clock(() => local('/bin/bash', '-l', '-c', 'echo hi')))
}
say('create to first command', { ms: first })
say('create', { ms: created })

await calm()
const box = await Sandbox.create({ timeoutMs: 600_000 })
say('command', { ms: await many(() => clock(() => box.commands.run('echo hi'))) })
say('a command by a bare bash', { ms: bare })
const few = async (f) => {
  const out = []
  for (let i = 0; i < Math.min(rounds, 5); i++) out.push((megabytes * 1000) / (await clock(f)))
  return out
}
const data = new Uint8Array(megabytes << 20).fill(120)
say('write a file', { mb_per_s: await few(() => box.files.write('/home/user/big', new Blob([data]))) })
say('read a file', { mb_per_s: await few(() => box.files.read('/home/user/big', { format: 'bytes' })) })
say('output of a command', { mb_per_s: await few(() => box.commands.run(`head -c ${megabytes << 20} /dev/zero`, { timeoutMs: 0 })) })
await box.kill()
