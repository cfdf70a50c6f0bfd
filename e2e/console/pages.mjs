// Opens each page of the console on real data and uses its controls, at desktop and
// phone width, in the light and the dark scheme, and checks each page with axe.
import { execFile } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { promisify } from 'node:util'

import { accessible, api, login, open, shot, url, visit } from './browser.mjs'
import { assert, check, eventually, run } from './harness.mjs'

const { page, context, complaints } = await open()
const main = page.getByRole('main')
const rows = () => main.getByRole('table').first().getByRole('row')
const tab = (name) => page.getByRole('tab', { name, exact: true }).click()
const choose = async (filter, value) => {
  await main.getByRole('combobox', { name: filter, exact: true }).click()
  await page.getByRole('option', { name: value, exact: true }).click()
  await page.keyboard.press('Escape')
}
const long = 'a-sandbox-with-a-name-that-is-as-long-as-names-of-sandboxes-may'
const ok = async (answer) => {
  const r = await answer
  assert.ok(r.status < 300, r.text)
  return r.json
}

check('the overview of a new server', async () => {
  await page.getByLabel('API key').waitFor()
  await page.waitForLoadState('networkidle')
  assert.equal(await page.getByRole('link', { name: /identity provider/ }).count(), 0, 'no identity provider is configured')
  await login(page)
  await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor()
  await page.getByTestId('ready').waitFor()
  await page.getByText('Nothing has run yet.').waitFor()
  await shot(page, 'overview-new')
  await accessible(page, 'the overview of a new server')
})

check('the examples work with a key that the page creates', async () => {
  const connect = page.getByTestId('connect')
  await connect.getByRole('button', { name: 'Create a key and insert it' }).click()
  const example = connect.getByLabel('curl example')
  await eventually(async () => /brig_\w{8}/.test(await example.innerText()), 'the example has a key')
  const { stdout } = await promisify(execFile)('sh', ['-c', await example.innerText()])
  assert.equal(JSON.parse(stdout).stdout, '42\n')
  for (const name of ['Python', 'TypeScript', 'MCP']) {
    await connect.getByRole('tab', { name }).click()
    const text = await connect.getByLabel(`${name} example`).innerText()
    assert.ok(text.includes(url) && /brig_\w{8}/.test(text), text)
  }
  await connect.getByRole('tab', { name: 'E2B' }).click()
  await connect.getByRole('button', { name: 'Create a key and insert it' }).click()
  await eventually(async () => /E2B_API_KEY=e2b_\w{8}/.test(await connect.getByLabel('E2B example').innerText()), 'the example has a key for E2B')
})

check('the overview of what ran', async () => {
  await ok(api('POST', '/v1/run', { language: 'python', code: 'print("fine")', labels: { team: 'search' } }))
  await ok(api('POST', '/v1/run', { language: 'python', code: 'import sys; print("not so fine"); sys.exit(3)' }))
  const late = await api('POST', '/v1/run', { command: ['sleep', '30'], timeout_ms: 500 })
  assert.ok(late.json.timed_out ?? /TIMEOUT|timed/i.test(late.text), late.text)
  await page.reload()
  await main.getByText('exit 3').waitFor()
  await main.getByText('timed out').waitFor()
  await eventually(async () => Number((await page.getByLabel('Executions today').innerText()).match(/\n\s*(\d+)/)?.[1]) >= 4, 'the executions are counted')
  assert.match(await page.getByLabel('Warm pool').innerText(), /\d+ of \d+|off/)
  await shot(page, 'overview')
  await accessible(page, 'overview')
})

check('the history of runs', async () => {
  await visit(page, 'Runs')
  await main.getByText('exit 3').waitFor()
  await shot(page, 'runs')
  await accessible(page, 'runs')
  await choose('Status', 'failed')
  await eventually(async () => (await rows().count()) === 3, 'there are two that failed')
  assert.ok(page.url().includes('Status=failed'), 'the address has the filter')
  await page.reload()
  await eventually(async () => (await rows().count()) === 3, 'the address keeps the filter')
  await main.getByText('exit 3').click()
  const drawer = page.getByRole('dialog')
  await drawer.getByTestId('stdout').getByText('not so fine').waitFor()
  await shot(page, 'runs-details')
  await accessible(page, 'details of a run')
  await page.keyboard.press('Escape')
  await drawer.waitFor({ state: 'hidden' })
  await page.goto(`${url}/console/runs?q=team%3Dsearch`)
  await eventually(async () => (await rows().count()) === 2, 'a label is found')
  await page.goto(`${url}/console/runs?q=nowhere-at-all`)
  await page.getByText('No runs match.').waitFor()
})

check('nothing yet: the list teaches the next step', async () => {
  await visit(page, 'Sandboxes')
  await page.getByText('There are no sandboxes.').waitFor()
  assert.ok((await page.getByLabel('curl example').innerText()).includes(url))
  await shot(page, 'sandboxes-none')
  await accessible(page, 'no sandboxes')
})

check('a list with search, filters, order and actions on many', async () => {
  for (const [name, team] of [['alpha', 'search'], ['beta', 'search'], ['gamma', 'ads']]) await ok(api('POST', '/v1/sandboxes', { name, labels: { team }, limits: { memory: '128MiB' } }))
  await eventually(async () => (await rows().count()) === 4, 'they appear by themselves')
  await page.keyboard.press('/')
  await page.keyboard.type('gam')
  await eventually(async () => (await rows().count()) === 2, 'one is found')
  await page.getByRole('button', { name: 'Clear the search' }).click()
  await choose('Label', 'team=search')
  await eventually(async () => (await rows().count()) === 3, 'two have the label')
  await page.getByRole('columnheader', { name: 'Name' }).getByRole('button').click()
  assert.match(await rows().nth(1).innerText(), /alpha/)
  await page.getByRole('columnheader', { name: 'Name' }).getByRole('button').click()
  await eventually(async () => /beta/.test(await rows().nth(1).innerText()), 'the order is reversed')
  await page.getByRole('checkbox', { name: /Select all/ }).check()
  await shot(page, 'sandboxes-chosen')
  await accessible(page, 'selected sandboxes')
  await page.getByRole('toolbar').getByRole('button', { name: 'Stop' }).click()
  await eventually(async () => (await ok(api('GET', '/v1/sandboxes?label=team=search&state=stopped'))).sandboxes.length === 2, 'both are stopped')
  const row = page.getByRole('row', { name: /alpha/ })
  await row.getByText('stopped', { exact: true }).first().waitFor()
  assert.doesNotMatch(await row.innerText(), /without use|expire/, 'what is stopped does not expire')
  await page.getByRole('checkbox', { name: 'Select beta' }).check()
  await page.getByRole('toolbar').getByRole('button', { name: 'Remove' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click()
  await page.getByRole('row', { name: /beta/ }).waitFor({ state: 'hidden' })
})

check('create with labels, limits and hosts', async () => {
  await page.goto(`${url}/console/sandboxes`)
  await page.getByRole('button', { name: 'Create', exact: true }).click()
  const form = page.getByRole('dialog')
  await form.getByLabel('Name').fill('box')
  await form.getByLabel('Memory in MiB').fill('256')
  await form.getByLabel('Labels').fill('team=search')
  await page.keyboard.press('Enter')
  await form.getByLabel('Allowed hosts').fill('api.example.com:443')
  await page.keyboard.press('Enter')
  await form.getByRole('switch', { name: 'Can be paused while programs run' }).click()
  await shot(page, 'create')
  await accessible(page, 'the form')
  await form.getByRole('button', { name: 'Create' }).click()
  await page.getByRole('heading', { name: 'box', exact: true }).waitFor()
  const made = await ok(api('GET', '/v1/sandboxes/box'))
  assert.deepEqual([made.limits.memory, made.labels.team, made.egress.rules[0].host, made.egress.rules[0].ports[0], made.pausable], [256 << 20, 'search', 'api.example.com', 443, true])
})

check('live charts', async () => {
  const { pid } = await ok(api('POST', '/v1/sandboxes/box/processes', { shell: 'while :; do :; done' }))
  const live = page.getByTestId('live')
  await eventually(async () => Number((await live.innerText()).match(/CPU\s+([\d.]+) %/)?.[1]) > 20, 'the processor is busy')
  assert.match(await live.innerText(), /Memory\s+[\d.]+ MiB of 256\.0 MiB[\s\S]*sent/)
  assert.equal(await live.getByRole('img').count(), 3)
  await shot(page, 'sandbox')
  await accessible(page, 'a sandbox')
  await ok(api('POST', `/v1/sandboxes/box/processes/${pid}/signal`, { signal: 'SIGKILL' }))
  await eventually(async () => Number((await live.innerText()).match(/CPU\s+([\d.]+) %/)?.[1]) < 20, 'the processor is idle again')
})

check('logs with search and follow', async () => {
  await ok(api('POST', '/v1/sandboxes/box/exec', { shell: 'for i in $(seq 1 50); do echo line $i; done; echo a needle' }))
  await tab('Logs')
  const log = page.getByTestId('log')
  await log.getByText('a needle').waitFor()
  await page.getByLabel('Search the log').fill('NEEDLE')
  await page.getByText(/1 of 51 lines match/).waitFor()
  await log.locator('mark').getByText('needle').waitFor()
  await shot(page, 'logs')
  await accessible(page, 'logs')
  await page.getByLabel('Search the log').fill('')
  await ok(api('POST', '/v1/sandboxes/box/exec', { shell: 'echo added later' }))
  await log.getByText('added later').waitFor()
  await eventually(() => log.evaluate((e) => e.scrollTop + e.clientHeight >= e.scrollHeight - 2), 'it follows')
})

check('executions with their output', async () => {
  await tab('Executions')
  await page.getByRole('row', { name: /echo added later/ }).click()
  await page.getByRole('dialog').getByText('added later', { exact: true }).last().waitFor()
  await accessible(page, 'an execution')
  await page.keyboard.press('Escape')
})

const picture = Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==', 'base64')

check('files with preview, upload and directories', async () => {
  await tab('Files')
  await page.locator('input[type=file]').setInputFiles([
    { name: 'note.txt', mimeType: 'text/plain', buffer: Buffer.from('written by hand\n') },
    { name: 'dot.png', mimeType: 'image/png', buffer: picture },
    { name: 'evil.svg', mimeType: 'image/svg+xml', buffer: Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" onload="window.__xss=1"><script>window.__xss=2</script><rect width="9" height="9"/></svg>') },
    { name: 'data.bin', mimeType: 'application/octet-stream', buffer: Buffer.from([1, 0, 2]) },
  ])
  const preview = page.getByTestId('preview')
  for (const [name, shown] of [['note.txt', preview.getByText('written by hand')], ['dot.png', preview.getByRole('img')], ['evil.svg', preview.getByRole('img')], ['data.bin', preview.getByText('This file is binary')]]) {
    await page.getByRole('button', { name, exact: true }).click()
    await shown.waitFor()
    if (name === 'note.txt') await shot(page, 'preview')
    if (name === 'note.txt') await accessible(page, 'a preview')
    await page.keyboard.press('Escape')
    await preview.waitFor({ state: 'hidden' })
  }
  assert.equal(await page.evaluate('window.__xss'), undefined)
  await page.getByRole('button', { name: 'New directory' }).click()
  await page.getByRole('dialog').getByLabel('Name').fill('deep')
  await page.getByRole('dialog').getByRole('button', { name: 'Create' }).click()
  await page.getByRole('button', { name: 'deep/' }).click()
  await page.getByText('This directory is empty.').waitFor()
  await page.getByRole('button', { name: 'workspace', exact: true }).click()
  await page.getByRole('button', { name: 'deep/' }).waitFor()
  await shot(page, 'files')
  await accessible(page, 'files')
})

const prompt = (terminal) => eventually(async () => /[#$]\s*$/.test((await terminal.locator('.xterm-rows').innerText()).trimEnd()), 'the shell asks')

check('a terminal that survives other tabs, other pages and a reload', async () => {
  await tab('Terminal')
  const terminal = page.getByTestId('terminal')
  await prompt(terminal)
  await page.keyboard.type('KEPT=4242; echo it is $((KEPT+1))\n')
  await terminal.getByText('it is 4243').first().waitFor()
  await tab('Files')
  await page.getByRole('button', { name: 'note.txt', exact: true }).waitFor()
  await tab('Terminal')
  await page.keyboard.type('echo still $((KEPT+2))\n')
  await terminal.getByText('still 4244').first().waitFor()
  await visit(page, 'Audit')
  await page.goBack()
  await terminal.getByText('still 4244').first().waitFor()
  await terminal.click()
  await page.keyboard.type('echo again $((KEPT+3))\n')
  await terminal.getByText('again 4245').first().waitFor()
  await page.reload()
  await terminal.getByText('again 4245').first().waitFor()
  await terminal.click()
  await page.keyboard.type('echo finally $((KEPT+4))\n')
  await terminal.getByText('finally 4246').first().waitFor()
  await shot(page, 'terminal')
  await page.keyboard.press('Control+Shift+Escape')
  await eventually(() => page.evaluate(() => document.activeElement?.id === 'end-shell'), 'a keyboard leaves the terminal')
  await page.keyboard.press('Enter')
  await page.getByRole('button', { name: 'New shell' }).click()
  await prompt(terminal)
  await page.keyboard.type('echo "new:$KEPT:"\n')
  await terminal.getByText('new::', { exact: false }).first().waitFor()
  await page.keyboard.type('exit\n')
  await page.getByRole('button', { name: 'New shell' }).waitFor()
})

check('processes and ports', async () => {
  await tab('Processes')
  await page.getByRole('button', { name: 'Start a process' }).click()
  await page.getByRole('dialog').getByLabel('Command').fill('echo serving; exec python3 -m http.server 8321')
  await page.getByRole('dialog').getByRole('button', { name: 'Start' }).click()
  const row = page.getByRole('row', { name: /8321/ })
  await row.getByText('running').waitFor()
  await row.getByText(/echo serving/).click()
  await page.getByRole('dialog').getByText('serving', { exact: false }).nth(1).waitFor()
  await page.keyboard.press('Escape')
  await page.getByRole('dialog').waitFor({ state: 'hidden' })
  await shot(page, 'processes')
  await accessible(page, 'processes')
  await tab('Ports')
  await eventually(async () => {
    await page.getByRole('button', { name: 'Look again' }).click()
    return (await page.getByRole('cell', { name: '8321', exact: true }).count()) === 1
  }, 'the port is found')
  assert.match(await page.getByRole('link', { name: /:8321/ }).getAttribute('href'), /^http:\/\/127\.\d+\.\d+\.\d+:8321\/$/)
  await shot(page, 'ports')
  await accessible(page, 'ports')
  await tab('Processes')
  await row.getByRole('button', { name: 'Kill' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Kill' }).click()
  await row.getByText('running').waitFor({ state: 'hidden' })
})

check('policy: the network rules change', async () => {
  await tab('Policy')
  await page.getByRole('cell', { name: 'api.example.com' }).waitFor()
  await shot(page, 'policy')
  await accessible(page, 'policy')
  await page.getByRole('button', { name: 'Change' }).click()
  await page.getByRole('dialog').getByLabel('Allowed hosts').fill('192.0.2.0/24')
  await page.keyboard.press('Enter')
  await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click()
  await page.getByRole('cell', { name: '192.0.2.0/24' }).waitFor()
  assert.deepEqual((await ok(api('GET', '/v1/sandboxes/box'))).egress.rules.map((r) => r.host ?? r.cidr), ['api.example.com', '192.0.2.0/24'])
})

check('its audit trail, newest first, one row for intent and outcome', async () => {
  await tab('Audit')
  await page.getByRole('cell', { name: 'sandbox.egress' }).waitFor()
  const ops = await rows().locator('td:nth-child(2)').allInnerTexts()
  assert.ok(ops.indexOf('sandbox.egress') < ops.indexOf('sandbox.create'), `${ops}`)
  assert.equal(ops.filter((o) => o === 'sandbox.create').length, 1)
  await shot(page, 'trail')
  await accessible(page, 'the trail')
})

check('pause and resume', async () => {
  await eventually(async () => (await ok(api('GET', '/v1/sandboxes/box/processes'))).processes.every((p) => !p.running), 'nothing runs')
  await page.getByRole('button', { name: 'Pause', exact: true }).click()
  const paused = page.getByTestId('paused')
  await paused.waitFor()
  assert.match(await paused.innerText(), /take [\d.]+ (KiB|MiB) on disk/)
  assert.doesNotMatch(await page.getByTestId('end').innerText(), /without use/)
  await tab('Overview')
  await shot(page, 'paused')
  await accessible(page, 'a paused sandbox')
  await paused.getByRole('button', { name: 'Resume' }).click()
  await paused.waitFor({ state: 'hidden' })
  await page.getByTestId('live').waitFor()
})

check('fork', async () => {
  const fork = async (fill) => {
    await page.goto(`${url}/console/sandboxes/box`)
    await page.getByRole('button', { name: 'Fork', exact: true }).click()
    const form = page.getByRole('dialog')
    await fill(form)
    await form.getByRole('button', { name: 'Create' }).click()
    await form.waitFor({ state: 'hidden' })
  }
  const copies = async () => (await ok(api('GET', '/v1/sandboxes'))).sandboxes.filter((s) => s.origin)
  await fork(async (form) => {
    await form.getByRole('switch', { name: 'Keep the copy paused' }).click()
    await form.getByLabel('Name of the copy').fill('base')
    await shot(page, 'fork')
    await accessible(page, 'the form')
  })
  await page.getByRole('heading', { name: 'base', exact: true }).waitFor()
  await page.getByTestId('paused').waitFor()
  await fork(async (form) => {
    await form.getByLabel('Copies').fill('2')
    assert.equal(await form.getByLabel('Name of the copy').count(), 0, 'several copies have generated names')
  })
  await eventually(async () => (await copies()).length === 3, 'there are three copies')
  assert.deepEqual((await copies()).map((s) => s.state).sort(), ['paused', 'running', 'running'])
  for (const s of await copies()) await ok(api('DELETE', `/v1/sandboxes/${s.name}`))
  await page.goto(`${url}/console/sandboxes/box`)
  await page.getByTestId('live').waitFor()
})

check('a stopped sandbox says how it ended', async () => {
  await page.getByRole('button', { name: 'Stop', exact: true }).click()
  await eventually(async () => /^stopped/.test(await page.getByTestId('end').innerText()), 'it says how it ended')
  assert.doesNotMatch(await page.getByTestId('end').innerText(), /without use|expire/)
  assert.equal(await page.getByRole('tab', { name: 'Terminal' }).count(), 0)
  await shot(page, 'stopped')
  await accessible(page, 'a stopped sandbox')
})

check('the audit log: filters, and the export of all of it', async () => {
  await visit(page, 'Audit')
  await page.getByRole('cell', { name: 'sandbox.stop' }).first().waitFor()
  await shot(page, 'audit')
  await accessible(page, 'audit')
  await choose('Operation', 'sandbox.pause')
  await eventually(async () => (await rows().count()) === 2, 'only that operation is listed')
  await rows().nth(1).click()
  await page.getByRole('dialog').getByText('box', { exact: true }).first().waitFor()
  await accessible(page, 'an entry')
  await page.keyboard.press('Escape')
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Export' }).click()])
  const { stdout } = await promisify(execFile)(process.env.BRIG, ['audit', 'verify', await download.path()])
  assert.match(stdout, /\d\d/)
  const changed = `${await download.path()}.changed`
  await writeFile(changed, (await readFile(await download.path(), 'utf8')).replace('"sandbox.pause"', '"sandbox.resume"'))
  await assert.rejects(promisify(execFile)(process.env.BRIG, ['audit', 'verify', changed]))
})

const names = ['Overview', 'Run', 'Runs', 'Sandboxes', 'Images & templates', 'Workspaces', 'Secrets', 'Usage', 'Keys', 'Audit', 'Tenants', 'Providers', 'Pool & host']
for (const width of [1280, 390]) {
  check(`every page, ${width} pixels wide`, async () => {
    if (width === 1280) {
      await ok(api('POST', '/v1/sandboxes', { name: long, labels: { team: 'x'.repeat(60), ['l'.repeat(40)]: 'y'.repeat(60) } }))
      await ok(api('PUT', '/v1/secrets/api-token', { value: 'swordfish-swordfish', hosts: ['api.example.com'] }))
      await ok(api('POST', '/v1/workspaces', { name: 'data' }))
    }
    await page.setViewportSize({ width, height: 850 })
    const fits = async (what) => {
      await accessible(page, `${what}, ${width} wide`)
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${what} is wider than ${width}`)
      await shot(page, `${what.toLowerCase().replace(/\W+/g, '-')}-${width}`)
    }
    for (const name of names) {
      await visit(page, name)
      await eventually(async () => (await main.getByRole('status', { name: 'Loading' }).count()) === 0, `${name} is loaded`)
      await fits(name)
    }
    await page.goto(`${url}/console/sandboxes/${long}`)
    await page.getByTestId('live').waitFor()
    await fits('a long name')
    await page.setViewportSize({ width: 1280, height: 850 })
  })
}

check('a thousand rows', async () => {
  const box = await ok(api('GET', `/v1/sandboxes/${long}`))
  const many = Array.from({ length: 1000 }, (_, i) => ({ ...box, id: `sb${i}`, name: `box-${i}`, labels: { n: String(i % 7) } }))
  const answer = (r) => r.fulfill({ json: { sandboxes: many } })
  await page.route('**/v1/sandboxes?limit=1000', answer)
  await page.goto(`${url}/console/sandboxes`)
  await page.getByText('1000 sandboxes').waitFor()
  assert.equal(await rows().count(), 51)
  await page.getByRole('button', { name: 'page 20' }).click()
  await page.getByRole('link', { name: 'box-999', exact: true }).waitFor()
  await page.getByLabel('Search sandboxes').fill('box-99')
  await page.getByText('11 of 1000 sandboxes').waitFor()
  await shot(page, 'many')
  await accessible(page, 'many')
  await page.unroute('**/v1/sandboxes?limit=1000', answer)
})

check('a server that is slow, and one that fails', async () => {
  let go
  const wait = new Promise((ok) => (go = ok))
  const slow = async (r) => (await wait, r.continue())
  await page.route('**/v1/sandboxes?limit=1000', slow)
  await page.goto(`${url}/console/sandboxes`)
  await main.getByRole('status', { name: 'Loading' }).waitFor()
  await accessible(page, 'a slow server')
  go()
  await page.getByRole('link', { name: long }).waitFor()
  await page.unroute('**/v1/sandboxes?limit=1000', slow)
  const before = complaints.length
  const fail = (r) => r.fulfill({ status: 503, json: { error: { code: 'SB-TEST', message: 'the disk is full', hint: 'make room' } } })
  await page.route('**/v1/sandboxes?limit=1000', fail)
  await page.getByRole('alert').getByText('the disk is full').waitFor()
  assert.ok(await page.getByRole('link', { name: long }).isVisible(), 'what was known is gone')
  await shot(page, 'failing')
  await accessible(page, 'a failing server')
  await page.unroute('**/v1/sandboxes?limit=1000', fail)
  await page.getByRole('alert').waitFor({ state: 'hidden' })
  complaints.splice(before)
})

check('a warning before the key in use is revoked', async () => {
  const { key } = await ok(api('POST', '/v1/keys', { name: 'mine', role: 'admin' }))
  await ok(api('POST', '/v1/keys', { name: 'other', role: 'viewer' }))
  const it = await open()
  await login(it.page, key)
  await visit(it.page, 'Keys')
  const row = (name) => it.page.getByRole('row', { name: new RegExp(`\\b${name}\\b`) }).first()
  const dialog = it.page.getByRole('dialog')
  const yes = dialog.getByRole('button', { name: 'Revoke' })
  await row('other').getByRole('button', { name: 'Revoke' }).click()
  await yes.click()
  await row('other').waitFor({ state: 'hidden' })
  await row('mine').getByText('in use here').waitFor()
  await row('mine').getByRole('button', { name: 'Revoke' }).click()
  await dialog.getByText('You are signed in with this key').waitFor()
  assert.ok(await yes.isDisabled())
  await shot(it.page, 'revoke')
  await accessible(it.page, 'the warning')
  await dialog.getByLabel('Type mine to confirm').fill('mine')
  await yes.click()
  await it.page.getByLabel('API key').waitFor()
  await accessible(it.page, 'the sign-in')
  await it.context.close()
})

check('a viewer sees what viewers may', async () => {
  const { key } = await ok(api('POST', '/v1/keys', { name: 'watcher', role: 'viewer' }))
  const it = await open()
  await login(it.page, key)
  await it.page.getByLabel('Running sandboxes').waitFor()
  assert.deepEqual(await it.page.getByRole('navigation').getByRole('link').allInnerTexts(), ['Overview', 'Sandboxes', 'Images & templates', 'Workspaces', 'Documentation'])
  await shot(it.page, 'viewer')
  await accessible(it.page, 'the overview of a viewer')
  assert.deepEqual(it.complaints.filter((c) => !/401.*whoami/.test(c)), [])
  await it.context.close()
})

check('nothing broke the policy, and nothing failed unseen', async () => {
  assert.deepEqual(complaints.filter((c) => !/401.*whoami/.test(c) && !/409.*\/usage/.test(c)), [])
  await context.close()
})

await run()
