// The code interpreter SDK.
import { Sandbox } from '@e2b/code-interpreter'
import { assert, check, eventually, rejects, run, sleep } from './harness.mjs'

const box = await Sandbox.create({ timeoutMs: 600_000, envs: { GLOBAL: 'g' } })

check('result and state', async () => {
  assert.equal((await box.runCode('1 + 1')).text, '2')
  await box.runCode('x = 41')
  const r = await box.runCode('x += 1; x')
  assert.equal(r.text, '42')
  assert.equal(r.results[0].isMainResult, true)
  assert.ok(r.executionCount >= 3)
  assert.equal((await box.runCode("'abc'")).text, 'abc')
})

check('streams', async () => {
  const out = [], err = [], results = []
  const r = await box.runCode('import sys, time\nprint("a", flush=True); time.sleep(0.3); print("b", file=sys.stderr)\nprint("grün 😀")\n7', {
    onStdout: (m) => out.push(m.line ?? m), onStderr: (m) => err.push(m.line ?? m), onResult: (x) => results.push(x),
  })
  assert.equal(r.logs.stdout.join(''), 'a\ngrün 😀\n')
  assert.equal(r.logs.stderr.join(''), 'b\n')
  assert.equal(out.map((m) => m.line ?? m).join(''), 'a\ngrün 😀\n')
  assert.equal(results.length, 1)
})

check('error', async () => {
  let told
  const r = await box.runCode('def f():\n    return 1 / 0\nf()', { onError: (e) => (told = e) })
  assert.equal(r.error.name, 'ZeroDivisionError')
  assert.equal(r.error.value, 'division by zero')
  assert.match(r.error.traceback, /ZeroDivisionError/)
  assert.equal(told.name, 'ZeroDivisionError')
  assert.equal((await box.runCode('1')).text, '1')
})

check('rich results', async () => {
  const r = await box.runCode(`
class R:
    def _repr_html_(self): return "<b>h</b>"
    def _repr_markdown_(self): return "**m**"
    def _repr_latex_(self): return "$x$"
    def _repr_svg_(self): return "<svg/>"
R()`)
  const m = r.results.at(-1)
  assert.deepEqual([m.html, m.markdown, m.latex, m.svg], ['<b>h</b>', '**m**', '$x$', '<svg/>'])
  assert.deepEqual((await box.runCode('{"a": [1, 2]}')).results[0].json, { a: [1, 2] })
})

check('pandas and matplotlib', async () => {
  const has = await box.runCode('import importlib.util as u; bool(u.find_spec("pandas") and u.find_spec("matplotlib"))')
  assert.equal(has.text, 'True', 'they are not installed')
  const frame = await box.runCode('import pandas as pd\npd.DataFrame({"a": [1, 2], "b": ["x", "y"]})')
  assert.match(frame.results[0].html, /<table/)
  assert.deepEqual(frame.results[0].data, { a: [1, 2], b: ['x', 'y'] })
  const plot = await box.runCode('import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], [4, 5, 6], label="l"); plt.xlabel("X (s)"); plt.title("T"); plt.show()')
  const figure = plot.results.find((x) => x.png)
  assert.ok(Buffer.from(figure.png, 'base64').subarray(1, 4).toString() === 'PNG')
  assert.equal(figure.chart.type, 'line')
  assert.equal(figure.chart.title, 'T')
  assert.deepEqual(figure.chart.elements[0].points, [[1, 4], [2, 5], [3, 6]])
})

check('env vars', async () => {
  assert.equal((await box.runCode('import os; os.environ["GLOBAL"]')).text, 'g')
  assert.equal((await box.runCode('os.environ["MINE"]', { envs: { MINE: 'm' } })).text, 'm')
  assert.equal((await box.runCode('os.environ.get("MINE")')).text, undefined)
})

check('languages', async () => {
  assert.equal((await box.runCode('const y = 20; y + 22', { language: 'javascript' })).text, '42')
  assert.equal((await box.runCode('const z: number = 40; z + 2', { language: 'typescript' })).text, '42')
  assert.equal((await box.runCode('echo $((6*7))', { language: 'bash' })).logs.stdout.join(''), '42\n')
})

check('contexts', async () => {
  const one = await box.createCodeContext({ cwd: '/tmp' })
  const two = await box.createCodeContext({ language: 'python' })
  assert.notEqual(one.id, two.id)
  await box.runCode('v = 1', { context: one })
  await box.runCode('v = 2', { context: two })
  assert.equal((await box.runCode('v', { context: one })).text, '1')
  assert.equal((await box.runCode('v', { context: two })).text, '2')
  assert.equal((await box.runCode('import os; os.getcwd()', { context: one })).text, '/tmp')
  const list = await box.listCodeContexts()
  assert.ok(list.some((c) => c.id === one.id && c.cwd === '/tmp') && list.some((c) => c.id === two.id))
  await box.restartCodeContext(one)
  assert.equal((await box.runCode('v', { context: one })).error.name, 'NameError')
  await box.removeCodeContext(two.id)
  assert.ok(!(await box.listCodeContexts()).some((c) => c.id === two.id))
  await assert.rejects(box.runCode('1', { context: two }))
})

check('a client that goes away interrupts', async () => {
  const late = box.runCode('import time\nfor i in range(600): time.sleep(0.1)', { timeoutMs: 1000 }).catch((e) => e)
  const err = await late
  assert.equal(err.constructor.name, 'TimeoutError', `${err}`)
  const begin = Date.now()
  assert.equal((await box.runCode('"again"')).text, 'again')
  assert.ok(Date.now() - begin < 15_000)
})

check('commands and files beside it', async () => {
  await box.files.write('data.csv', 'a,b\n1,2\n')
  assert.equal((await box.runCode('open("/home/user/data.csv").read()')).text.includes('1,2'), true)
  assert.equal((await box.commands.run('cat data.csv | wc -l')).stdout.trim(), '2')
})

check('end', async () => assert.equal(await box.kill(), true))

await run()
