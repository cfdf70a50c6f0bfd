// Tools with Letta's clients.
import { assert, check, rejects, run as checks } from './harness.mjs'
import { older, run } from './clients.mjs'

const failing = (r, text) => {
  assert.equal(r.status, 'error', JSON.stringify(r))
  assert.match(r.tool_return, text)
}

check('a tool, by the older client', async () => {
  const r = await older.tools.runToolFromSource({
    sourceCode: 'def greet(name: str, times: int) -> str:\n    print("hello")\n    return f"Hi {name}! " * times\n',
    args: { name: 'World', times: 2 },
  })
  assert.equal(r.status, 'success')
  assert.equal(r.toolReturn, 'Hi World! Hi World! ')
  assert.deepEqual(r.stdout, ['hello\n'])
  assert.deepEqual(r.stderr, [])
  assert.equal(r.messageType, 'tool_return_message')
  assert.equal(r.toolCallId, 'null')
  assert.ok(r.date instanceof Date)
})

check('the same, by the newer one', async () => {
  const r = await run('def add(a: int, b: int):\n    return a + b', { a: 2, b: 40 })
  assert.equal(r.status, 'success')
  assert.equal(r.tool_return, '42')
  assert.equal(r.func_return, 42)
  assert.match(r.sandbox_config_fingerprint, /^[0-9]{60,78}$/)
})

check('a relative path is the same for code and for commands', async () => {
  const source = 'def f():\n    import subprocess\n    open("rel.txt", "w").write("by code")\n    out = subprocess.check_output("cat rel.txt; echo -n by command > out.txt", shell=True).decode()\n    return [out, open("out.txt").read()]'
  assert.deepEqual((await run(source)).func_return, ['by code', 'by command'])
})

check('types stay', async () => {
  const args = { a: true, b: null, c: 1.5, d: [1, 'é', { x: false }], e: { k: 'v' }, f: '7', g: 9007199254740993n.toString() }
  const r = await run('def f(**kw):\n    return {k: type(v).__name__ for k, v in kw.items()}', args)
  assert.deepEqual(r.func_return, { a: 'bool', b: 'NoneType', c: 'float', d: 'list', e: 'dict', f: 'str', g: 'str' })
})

check('types from annotations', async () => {
  const r = await run('def f(a: int, b: float, c: bool, d: list, e: str):\n    return [a + 1, b, c, d, e]', { a: '41', b: '2', c: 'true', d: '[1, 2]', e: '5' })
  assert.deepEqual(r.func_return, [42, 2.0, true, [1, 2], '5'])
})

check('types from a schema', async () => {
  const json_schema = {
    name: 'f', description: 'd',
    parameters: { type: 'object', properties: { n: { type: 'integer' }, o: { type: 'object', properties: { x: { type: 'number' } } } }, required: ['n'] },
  }
  const source = 'def f(n, o=None):\n    return [n + 1, o]\n\ndef not_this():\n    return "no"'
  const r = await run(source, { n: '41', o: { x: '1.5' }, request_heartbeat: true }, { json_schema })
  assert.deepEqual(r.func_return, [42, { x: 1.5 }])
  await rejects(run(source, { n: 'many' }, { json_schema }), 'BadRequestError', /args\.n.*not of the type integer/)
  await rejects(run(source, {}, { json_schema }), 'BadRequestError', /args\.n/)
})

check('the last function, or the one that is named', async () => {
  const source = 'def one():\n    return "one " + two()\n\ndef two():\n    return "two"\n'
  assert.equal((await run(source)).tool_return, 'two')
  const r = await run(source, {}, { name: 'one' })
  assert.equal(r.tool_return, 'one two')
  assert.equal(r.name, 'one')
  failing(await run(source, {}, { name: 'three' }), /Error executing function three: NameError/)
})

check('an async tool', async () => {
  const r = await run('import asyncio\nasync def f(n: int):\n    await asyncio.sleep(0.01)\n    return n * 2', { n: 21 })
  assert.equal(r.tool_return, '42')
})

check('values as text', async () => {
  const text = async (expr) => (await run(`def f():\n    return ${expr}`)).tool_return
  assert.equal(await text('None'), 'None')
  assert.equal(await text('[1, "a", None]'), "[1, 'a', None]")
  assert.equal(await text('{"a": 1}'), '{"a": 1}')
  assert.equal(await text('True'), 'True')
  assert.equal(await text('object'), "<class 'object'>")
})

check('an error', async () => {
  const r = await run('def f():\n    print("before")\n    raise ValueError("no " * 2)')
  failing(r, /^Error executing function f: ValueError: no no $/)
  assert.deepEqual(r.stdout, ['before\n'])
  assert.match(r.stderr[0], /File "tool.py", line 3, in f\n    raise ValueError/)
  const long = await run('def f():\n    raise ValueError("x" * 5000)')
  assert.equal(long.tool_return.length, 1000)
  failing(await run('def f(:\n    pass'), /SyntaxError/)
})

check('what is long is cut', async () => {
  const r = await run('def f():\n    return "x" * 60000')
  assert.equal(r.tool_return, 'x'.repeat(50000) + '... [NOTE: function output was truncated since it exceeded the character limit (60000 > 50000)]')
  const small = await run('def f():\n    return "é" * 11', {}, { return_char_limit: 10 })
  assert.ok(small.tool_return.startsWith('é'.repeat(10) + '...'))
})

check('state in and out', async () => {
  const agent_state = { id: 'agent-1', memory: { blocks: [{ label: 'human', value: 'Bob' }, { label: 'persona', value: 'kind' }] }, tags: ['a'] }
  const r = await run(`
def rename(agent_state: "AgentState", name: str):
    old = agent_state.memory.get_block("human").value
    agent_state.memory.update_block_value(label="human", value=name)
    agent_state["tags"].append("b")
    return old
`, { name: 'Ann' }, { agent_state })
  assert.equal(r.tool_return, 'Bob')
  assert.equal(r.agent_state.memory.blocks[0].value, 'Ann')
  assert.equal(r.agent_state.memory.blocks[1].value, 'kind')
  assert.deepEqual(r.agent_state.tags, ['a', 'b'])
  assert.equal((await run('def f():\n    return 1', {}, { agent_state })).agent_state, null)
})

check('a tool in TypeScript', async () => {
  const json_schema = { name: 'add', parameters: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'] } }
  const source = `
import { createHash } from 'node:crypto'
interface Sum { total: number; hash: string }
function helper(n: number): string { return createHash('md5').update(String(n)).digest('hex') }
export async function add(a: number, b: number): Promise<Sum> {
  console.log('adding', a, b)
  return { total: a + b, hash: helper(a + b) }
}`
  const r = await run(source, { b: '40', a: 2 }, { source_type: 'typescript', json_schema })
  assert.equal(r.status, 'success', JSON.stringify(r))
  assert.deepEqual(r.func_return, { total: 42, hash: 'a1d0c6e83f027327d8461063f4ac58a6' })
  assert.deepEqual(r.stdout, ['adding 2 40\n'])
  await rejects(run(source, {}, { source_type: 'typescript' }), 'BadRequestError', /json_schema/)
  failing(await run('export function add(a: number) { throw new RangeError("too " + a) }', { a: 1, b: 2 }, { source_type: 'typescript', json_schema }), /add: RangeError: too 1/)
  failing(await run('export function add(a: {', { a: 1, b: 2 }, { source_type: 'typescript', json_schema }), /SyntaxError/)
})

check('what is wrong with a request', async () => {
  await rejects(run(undefined), 'UnprocessableEntityError', /source_code/)
  await rejects(run('def f(): pass', [1]), 'BadRequestError', /args/)
  await rejects(run('x = 1', {}, { source_type: 'ruby' }), 'BadRequestError', /not supported/)
  failing(await run('x = 1'), /no function/)
})

checks()
