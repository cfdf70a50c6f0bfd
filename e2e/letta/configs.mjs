// Sandbox configurations and their variables with Letta's client.
import { createHash } from 'node:crypto'
import { assert, check, eventually, rejects, run as checks } from './harness.mjs'
import { config, letta, rival, run } from './clients.mjs'

const value = async (source, ...more) => {
  const r = await run(source, ...more)
  assert.equal(r.status, 'success', JSON.stringify(r))
  return r
}
const nothing = 'def f():\n    return 1'
const env = (name) => `import os\ndef f():\n    return os.environ.get("${name}")`

// fingerprint computes the fingerprint of a configuration independently.
function fingerprint(c) {
  const sorted = (v) => Array.isArray(v) ? v.map(sorted) : v && typeof v === 'object'
    ? Object.fromEntries(Object.keys(v).sort().map((k) => [k, sorted(v[k])])) : v
  const text = JSON.stringify(sorted({ type: c.type, organization_id: c.organization_id, config: c.config }))
  return BigInt('0x' + createHash('sha256').update(text).digest('hex')).toString()
}

check('defaults of each kind', async () => {
  const local = await config('post', '/local/default')
  assert.match(local.id, /^sandbox-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
  assert.match(local.organization_id, /^org-[0-9a-f]{8}-[0-9a-f]{4}-5/)
  assert.equal(local.type, 'local')
  assert.deepEqual(local.config, { sandbox_dir: '/workspace', use_venv: false, venv_name: 'venv', pip_requirements: null })
  const e2b = await config('post', '/e2b/default')
  assert.deepEqual([e2b.type, e2b.config], ['e2b', { timeout: 300, template: null, pip_requirements: null }])
  const modal = await config('post', '/', { config: { npm_requirements: ['lodash'], language: 'typescript' } })
  assert.deepEqual([modal.type, modal.config], ['modal', { timeout: 60, pip_requirements: null, npm_requirements: ['lodash'], language: 'typescript' }])
  const list = await config('get', '/')
  assert.deepEqual(list.map((c) => c.type), ['local', 'e2b', 'modal'])
  assert.deepEqual((await config('get', '/?sandbox_type=e2b')).map((c) => c.id), [e2b.id])
  assert.deepEqual((await config('get', `/?limit=1&after=${local.id}`)).map((c) => c.id), [e2b.id])
  for (const c of list) await config('delete', `/${c.id}`)
  assert.deepEqual(await config('get', '/'), [])
})

check('one of each kind', async () => {
  const first = await config('post', '/', { config: { sandbox_dir: '/workspace', use_venv: true } })
  const second = await config('post', '/', { config: { sandbox_dir: '/workspace', use_venv: false } })
  assert.equal(first.id, second.id)
  assert.equal(second.config.use_venv, false)
  assert.equal(first.created_at, second.created_at)
  assert.equal((await config('get', '/')).length, 1)
  const changed = await config('patch', `/${first.id}`, { config: { venv_name: 'other' } })
  assert.equal(changed.config.venv_name, 'other')
  await rejects(config('patch', `/${first.id}`, { config: { timeout: 5 } }), 'BadRequestError', /no field .*timeout/)
  await rejects(config('post', '/', { config: { tiemout: 5 } }), 'BadRequestError', /no field .*tiemout/)
  await rejects(config('post', '/', {}), 'UnprocessableEntityError', /config/)
  await rejects(config('patch', '/sandbox-nonsense', { config: {} }), 'UnprocessableEntityError', /form of an id/)
  await rejects(config('delete', '/sandbox-123e4567-e89b-42d3-8456-426614174000'), 'NotFoundError')
  await config('delete', `/${first.id}`)
})

check('variables: unique by key, changed, gone with their configuration', async () => {
  const c = await config('post', '/local/default')
  const at = `/${c.id}/environment-variable`
  const a = await config('post', at, { key: 'TOKEN', value: 'one', description: 'what for' })
  assert.match(a.id, /^sandbox-env-[0-9a-f-]{36}$/)
  assert.deepEqual([a.key, a.value, a.description, a.sandbox_config_id], ['TOKEN', 'one', 'what for', c.id])
  const again = await config('post', at, { key: 'TOKEN', value: 'two' })
  assert.equal(again.id, a.id)
  const b = await config('post', at, { key: 'OTHER', value: 'x' })
  const changed = await config('patch', `/environment-variable/${b.id}`, { value: 'y' })
  assert.deepEqual([changed.key, changed.value], ['OTHER', 'y'])
  const renamed = await config('patch', `/environment-variable/${b.id}`, { key: 'THIRD' })
  assert.deepEqual([renamed.id, renamed.key, renamed.value], [b.id, 'THIRD', 'y'])
  await rejects(config('patch', `/environment-variable/${b.id}`, { key: 'TOKEN' }), 'ConflictError')
  assert.deepEqual((await config('get', at)).map((v) => [v.key, v.value]), [['TOKEN', 'two'], ['THIRD', 'y']])
  await config('delete', `/environment-variable/${b.id}`)
  await rejects(config('delete', `/environment-variable/${b.id}`), 'NotFoundError')
  await config('delete', `/${c.id}`)
  await rejects(config('get', at), 'NotFoundError')
  await rejects(config('patch', `/environment-variable/${a.id}`, { value: 'z' }), 'NotFoundError')
})

check('which variable wins, and that it is seen by the next call', async () => {
  const c = await config('post', '/local/default')
  const at = `/${c.id}/environment-variable`
  await config('post', at, { key: 'WHO', value: 'setup' })
  await config('post', at, { key: 'TERM', value: 'setup' })
  const one = await value(env('WHO'))
  assert.equal(one.tool_return, 'setup')
  assert.equal((await value(env('TERM'))).tool_return, 'setup')
  assert.equal((await value(env('NO_COLOR'))).tool_return, '1')
  assert.equal((await value(env('WHO'), {}, { env_vars: { WHO: 'call' } })).tool_return, 'call')
  await config('post', at, { key: 'WHO', value: 'later' })
  const two = await value(env('WHO'))
  assert.deepEqual([two.tool_return, two.sandbox, two.sandbox_reused], ['later', one.sandbox, true])
  assert.equal(two.sandbox_config_fingerprint, one.sandbox_config_fingerprint)
})

check('a box is used again while the fingerprint stands', async () => {
  const c = await config('post', '/local/default')
  const one = await value('def f():\n    open("/workspace/mark", "w").write("x"); return 1')
  assert.equal(one.sandbox_config_fingerprint, fingerprint(c))
  const begin = Date.now()
  const two = await value('import os\ndef f():\n    return os.path.exists("/workspace/mark")')
  console.log(`a call in a box that is there takes ${Date.now() - begin} ms`)
  assert.deepEqual([two.sandbox, two.sandbox_reused, two.func_return], [one.sandbox, true, true])
  const changed = await config('patch', `/${c.id}`, { config: { venv_name: 'changed' } })
  const three = await value('import os\ndef f():\n    return os.path.exists("/workspace/mark")')
  assert.equal(three.sandbox_config_fingerprint, fingerprint(changed))
  assert.notEqual(three.sandbox, one.sandbox)
  assert.deepEqual([three.sandbox_reused, three.func_return], [false, false])
  await eventually(async () => (await letta.get('/v1/sandboxes')).sandboxes.every((s) => s.name !== one.sandbox), 'the old box goes')
  await config('post', '/local/recreate-venv')
  const four = await value(nothing)
  assert.notEqual(four.sandbox, three.sandbox)
  assert.equal(four.sandbox_config_fingerprint, three.sandbox_config_fingerprint)
})

check('calls at once have a box each', async () => {
  const slow = 'import time\ndef f():\n    time.sleep(1)\n    return 1'
  const both = await Promise.all([value(slow), value(slow)])
  assert.notEqual(both[0].sandbox, both[1].sandbox)
})

check('an idle box ends after its time, and use prolongs it', async () => {
  await config('post', '/', { config: { timeout: 4, template: null } })
  const one = await value(nothing)
  for (let i = 0; i < 4; i++) {
    await new Promise((done) => setTimeout(done, 1500))
    assert.equal((await value(nothing)).sandbox, one.sandbox)
  }
  await eventually(async () => (await letta.get('/v1/sandboxes')).sandboxes.every((s) => s.name !== one.sandbox || s.state === 'stopped'), 'it ends', 15_000)
  assert.notEqual((await value(nothing)).sandbox, one.sandbox)
  for (const c of await config('get', '/')) await config('delete', `/${c.id}`)
})

check('another organization has nothing of it', async () => {
  const c = await config('post', '/local/default')
  const v = await config('post', `/${c.id}/environment-variable`, { key: 'SECRET', value: 'ours' })
  assert.deepEqual(await rival.get('/v1/sandbox-config/'), [])
  for (const [method, path, body] of [
    ['patch', `/${c.id}`, { config: {} }], ['delete', `/${c.id}`], ['get', `/${c.id}/environment-variable`],
    ['post', `/${c.id}/environment-variable`, { key: 'A', value: 'b' }],
    ['patch', `/environment-variable/${v.id}`, { value: 'theirs' }], ['delete', `/environment-variable/${v.id}`],
  ]) {
    const told = await rejects(rival[method](`/v1/sandbox-config${path}`, body ? { body } : {}), 'NotFoundError')
    const never = path.replace(/[0-9a-f]{12}$|[0-9a-f]{12}(?=\/)/, '000000000000')
    const none = await rejects(rival[method](`/v1/sandbox-config${never}`, body ? { body } : {}), 'NotFoundError')
    assert.equal(told.message.replace(/[0-9a-f]{12}/g, ''), none.message.replace(/[0-9a-f]{12}/g, ''))
  }
  const ours = await value(nothing)
  const theirs = await rival.post('/v1/tools/run', { body: { source_code: env('SECRET'), args: {} } })
  assert.equal(theirs.tool_return, 'None')
  assert.notEqual(theirs.sandbox, ours.sandbox)
  assert.notEqual(theirs.sandbox_config_fingerprint, ours.sandbox_config_fingerprint)
})

checks()
