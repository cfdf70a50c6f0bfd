// The work of an administrator in the console, from login to logout.
import { createHash } from 'node:crypto'

import { api, login, open, shot, url, visit } from './browser.mjs'
import { assert, check, eventually, run } from './harness.mjs'

const { page, complaints } = await open()
const card = page.getByTestId('provider-self_managed')
const form = page.getByRole('dialog')
const input = (name) => form.getByRole('textbox', { name, exact: true })

// Each step depends on the previous one.
let broken = false
const step = (name, f) =>
  check(name, async () => {
    assert.ok(!broken, 'what it needs has failed')
    broken = true
    await f()
    broken = false
  })

step('log in', async () => {
  await shot(page, 'login')
  await login(page)
  assert.match(await page.getByTestId('who').innerText(), /operator/)
  assert.deepEqual(complaints.splice(0).filter((c) => !/401.*whoami/.test(c)), [])
})

step('choose a provider', async () => {
  await visit(page, 'Providers')
  await card.waitFor()
  await shot(page, 'providers')
  assert.match(await page.getByTestId('provider-gvisor').innerText(), /active/i)
  await card.getByRole('button', { name: 'Configure' }).click()
  await form.waitFor()
})

step('the form is what the schema says', async () => {
  const { json } = await api('GET', '/v1/providers')
  const { fields } = json.providers.find((p) => p.id === 'self_managed')
  assert.ok(fields.length > 10)
  for (const f of fields) {
    const made = form.getByLabel(f.label, { exact: false }).first()
    await made.waitFor({ timeout: 2000 }).catch(() => assert.fail(`there is no input "${f.label}"`))
    if (f.readonly) assert.ok(await made.isDisabled(), `${f.label} can be changed`)
    if (f.description) assert.ok(await form.getByText(f.description, { exact: true }).isVisible(), `${f.label} is not described`)
  }
  await shot(page, 'provider-form')
})

step('a value out of range', async () => {
  await input('Endpoint').fill('http://127.0.0.1:1')
  await input('Timeout (seconds)').fill('4')
  await form.getByRole('button', { name: 'Save' }).click()
  const timeout = input('Timeout (seconds)')
  await eventually(async () => (await timeout.getAttribute('aria-invalid')) === 'true', 'the field is marked')
  const told = (await timeout.getAttribute('aria-describedby')).split(' ').find((id) => id.endsWith('-error'))
  assert.match(await page.locator(`[id="${told}"]`).innerText(), /5/)
  assert.notEqual(await input('Endpoint').getAttribute('aria-invalid'), 'true')
  await shot(page, 'provider-wrong')
  assert.deepEqual(complaints.splice(0).filter((c) => !/422.*self_managed/.test(c)), [])
})

step('a wrong endpoint', async () => {
  await input('Timeout (seconds)').fill('20')
  await form.getByRole('button', { name: 'Test connection' }).click()
  const result = page.getByTestId('test-result')
  await result.waitFor()
  assert.match(await result.innerText(), /failed[\s\S]*(refused|answer|reach)/i)
  assert.equal(await input('Timeout (seconds)').getAttribute('aria-invalid'), null, 'what was mended is still marked')
  await shot(page, 'provider-failed')
})

step('the right endpoint', async () => {
  await input('Endpoint').fill(process.env.EXECMAN_URL)
  await form.getByRole('button', { name: 'Test connection' }).click()
  const result = page.getByTestId('test-result')
  await result.getByText(/Connected in \d+ ms/).waitFor()
  await shot(page, 'provider-right')
})

step('save and activate', async () => {
  await form.getByRole('button', { name: 'Save' }).click()
  await form.waitFor({ state: 'hidden' })
  await card.getByText('up', { exact: true }).waitFor()
  await card.getByRole('button', { name: 'Activate' }).click()
  await card.getByText('active', { exact: true }).waitFor()
})

step('run a program there', async () => {
  await visit(page, 'Run')
  await page.getByRole('button', { name: 'Run', exact: true }).click()
  await page.getByTestId('outcome').waitFor()
  await shot(page, 'run')
  assert.match(await page.getByTestId('outcome').innerText(), /exit 0[\s\S]*self_managed/i)
  assert.match(await page.getByTestId('output').innerText(), /hello from/)
})

step('the secret of a provider', async () => {
  const secret = 'known-to-nobody-but-the-server-4242'
  const given = { access_key_id: 'LTAI-e2e', access_key_secret: secret, account_id: '1431999136518149', control_endpoint: 'http://127.0.0.1:1', data_endpoint: 'http://127.0.0.1:1', allow_private: true }
  const saved = await api('PUT', '/v1/providers/aliyun_codeinterpreter', { config: given })
  assert.equal(saved.status, 200, saved.text)
  const answers = []
  const listen = (r) => r.url().includes('/v1/') && answers.push(r.text().catch(() => ''))
  page.on('response', listen)
  await page.reload()
  await visit(page, 'Providers')
  await page.getByTestId('provider-aliyun_codeinterpreter').getByRole('button', { name: 'Settings' }).click()
  await form.waitFor()
  await shot(page, 'provider-secret')
  const values = await form.locator('input, textarea').evaluateAll((all) => all.map((e) => e.value))
  assert.ok(values.includes('****4242'), `${values}`)
  assert.ok(values.includes('LTAI-e2e'), `what is no secret is not there either: ${values}`)
  page.off('response', listen)
  const said = (await Promise.all(answers)).join('\n')
  assert.ok(said.includes('****4242'), 'the page was told of no such provider')
  for (const [where, text] of Object.entries({ inputs: values.join('\n'), page: await page.content(), answers: said })) assert.ok(!text.includes(secret.slice(0, -4)), `the secret is in the ${where}`)
  await page.keyboard.press('Escape')
  await form.waitFor({ state: 'hidden' })
})

const program = 'import time\nprint("at first", flush=True)\ntime.sleep(5)\nprint("at last")\n'

step('watch a program live', async () => {
  await visit(page, 'Providers')
  await page.getByTestId('provider-gvisor').getByRole('button', { name: 'Activate' }).click()
  await page.getByTestId('provider-gvisor').getByText('active', { exact: true }).waitFor()
  await visit(page, 'Run')
  await page.getByRole('textbox', { name: 'Code' }).fill(program)
  await page.getByRole('button', { name: 'Run', exact: true }).click()
  const output = page.getByTestId('output')
  await output.getByText('at first').waitFor()
  assert.equal(await page.getByTestId('outcome').count(), 0, 'it is over when it is first seen')
  assert.doesNotMatch(await output.innerText(), /at last/)
  await shot(page, 'run-live')
  await page.getByTestId('outcome').waitFor()
  assert.match(await output.innerText(), /at first\s+at last/)
})

step('its entry in the audit log', async () => {
  await visit(page, 'Audit')
  await page.getByLabel('Search entries').fill(createHash('sha256').update(program).digest('hex'))
  // The intent and the outcome of an operation are one row.
  await eventually(async () => (await page.getByRole('row').count()) === 2, 'there are the head and one row')
  const row = page.getByRole('row').nth(1)
  assert.match(await row.innerText(), /run[\s\S]*ok[\s\S]*\d+, \d+/)
  await shot(page, 'audit-run')
})

step('make a sandbox at home', async () => {
  await visit(page, 'Sandboxes')
  await page.getByText('There are no sandboxes.').waitFor()
  await page.getByRole('button', { name: 'Create', exact: true }).click()
  await page.getByLabel('Name').fill('box')
  await shot(page, 'create')
  await form.getByRole('button', { name: 'Create' }).click()
  await page.getByRole('heading', { name: 'box', exact: true }).waitFor()
  assert.equal(page.url(), `${url}/console/sandboxes/box`)
  await page.getByText('running').first().waitFor()
  await shot(page, 'sandbox')
})

step('its terminal', async () => {
  await page.getByRole('tab', { name: 'Terminal' }).click()
  const terminal = page.getByTestId('terminal')
  await terminal.waitFor()
  await eventually(async () => /[#$]\s*$/.test((await terminal.locator('.xterm-rows').innerText()).trimEnd()), 'the shell asks')
  await page.keyboard.type('echo $((6*7)) > /workspace/answer; echo the answer is $(cat /workspace/answer)\n')
  await terminal.getByText('the answer is 42').first().waitFor()
  await shot(page, 'terminal')
})

step('its files, processes and logs', async () => {
  await page.getByRole('tab', { name: 'Processes' }).click()
  await page.getByRole('cell', { name: /bash/ }).first().waitFor()
  await page.getByRole('tab', { name: 'Files' }).click()
  const save = page.getByRole('link', { name: 'Download answer' })
  await save.waitFor()
  const [download] = await Promise.all([page.waitForEvent('download'), save.click()])
  const chunks = []
  for await (const c of await download.createReadStream()) chunks.push(c)
  assert.equal(Buffer.concat(chunks).toString(), '42\n')
  await page.locator('input[type=file]').setInputFiles({ name: 'up.txt', mimeType: 'text/plain', buffer: Buffer.from('uploaded\n') })
  await page.getByRole('button', { name: 'up.txt', exact: true }).waitFor()
  const { text } = await api('GET', '/v1/sandboxes/box/files/content?path=/workspace/up.txt')
  assert.equal(text, 'uploaded\n')
  await shot(page, 'files')
  await page.getByRole('tab', { name: 'Logs' }).click()
  await page.getByRole('tabpanel').waitFor()
  await shot(page, 'logs')
})

step('the entries of a sandbox in the audit log', async () => {
  await page.getByRole('tab', { name: 'Audit' }).click()
  await page.getByRole('cell', { name: 'sandbox.create' }).first().waitFor()
  await visit(page, 'Audit')
  await page.getByRole('button', { name: 'Verify' }).click()
  const verdict = page.getByTestId('verdict')
  await verdict.waitFor()
  assert.match(await verdict.innerText(), /\d+ lines are one chain/)
  await shot(page, 'audit')
})

step('the other pages', async () => {
  for (const name of ['Overview', 'Runs', 'Images & templates', 'Workspaces', 'Secrets', 'Usage', 'Keys', 'Tenants', 'Pool & host']) {
    await visit(page, name)
    await page.waitForTimeout(700)
    const alerts = page.getByRole('main').getByRole('alert')
    assert.equal(await alerts.count(), 0, `${name}: ${await alerts.allInnerTexts()}`)
    await shot(page, name.toLowerCase().replace(/\W+/g, '-'))
  }
})

step('pull an image', async () => {
  await visit(page, 'Images & templates')
  await page.getByRole('button', { name: 'Pull', exact: true }).click()
  await form.getByLabel('Reference').fill(process.env.IMAGE_REF)
  await form.getByRole('button', { name: 'Pull', exact: true }).click()
  await page.getByRole('cell', { name: process.env.IMAGE_REF }).waitFor()
  await page.getByTestId('job').waitFor({ state: 'hidden' })
  const { json } = await api('GET', '/v1/images')
  assert.ok(json.images.some((i) => i.names.includes(process.env.IMAGE_REF)), JSON.stringify(json))
})

step('a tenant, with a budget that another quota leaves as it is', async () => {
  const tenant = async () => (await api('GET', '/v1/tenants')).json.tenants.find((t) => t.name === 'guests')
  await visit(page, 'Tenants')
  await page.getByRole('button', { name: 'Create', exact: true }).click()
  await page.getByLabel('Name').fill('guests')
  await page.getByLabel('Budget of a month').fill('12.5')
  await page.getByRole('button', { name: 'Save' }).click()
  const row = page.getByRole('row', { name: /guests/ })
  await row.waitFor()
  assert.equal((await tenant()).budget, 12.5)
  await row.getByRole('button', { name: 'Quota' }).click()
  await page.getByLabel('Sandboxes at once').fill('3')
  await page.getByRole('button', { name: 'Save' }).click()
  await page.getByRole('dialog').waitFor({ state: 'hidden' })
  const { budget, quota } = await tenant()
  assert.deepEqual([budget, quota.sandboxes], [12.5, 3])
  await shot(page, 'tenants')
})

step('log out', async () => {
  const cookies = await page.context().cookies()
  assert.ok(cookies.length > 0 && cookies.every((c) => c.httpOnly && c.sameSite === 'Strict'), JSON.stringify(cookies))
  assert.deepEqual(complaints.splice(0), [])
  await page.getByRole('button', { name: 'Log out' }).click()
  await page.getByLabel('API key').waitFor()
  assert.equal(await page.evaluate(async () => (await fetch('/v1/auth/whoami')).status), 401)
  // The browser's cookie is no longer valid, either.
  const cookie = cookies.map((c) => `${c.name}=${c.value}`).join('; ')
  const status = async () => (await fetch(`${url}/v1/auth/whoami`, { headers: { Cookie: cookie } })).status
  for (let n = 0; n < 20 && (await status()) === 200; n++) await page.waitForTimeout(50) // the cookie must end within a second
  assert.equal(await status(), 401)
})

await run()
