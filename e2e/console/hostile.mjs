// Text that would run as a script if a page did not escape it, in every field that
// the console shows. A page without escaping is the control: the checks detect it.
import { api, login, open, shot, visit } from './browser.mjs'
import { assert, check, eventually, run } from './harness.mjs'

const mark = (n) => `window.__xss=${n}`
const payloads = [
  `<script>${mark(1)}</script>`,
  `<img src=x onerror="${mark(2)}">`,
  `<svg onload="${mark(3)}"></svg>`,
  `"><svg/onload=${mark(4)}>`,
  `'-alert(5)-'`,
  `javascript:${mark(6)}`,
  `\${${mark(7)}}{{constructor.constructor('${mark(7)}')()}}`,
  `&lt;img src=x onerror=${mark(8)}&gt;`,
  `\u202e<iframe srcdoc="<script>parent.${mark(9)}</script>">\u202c`,
  `<a href="javascript:${mark(10)}" autofocus onfocus="${mark(10)}">x</a>`,
  `\u001b]8;;javascript:${mark(11)}\u0007link\u001b]8;;\u0007`,
  `＜script＞${mark(12)}＜/script＞`,
]
const all = payloads.join('\n')
const shown = payloads[1] // a piece that must be seen as it is

async function watched() {
  const it = await open()
  it.dialogs = []
  it.page.on('dialog', (d) => (it.dialogs.push(d.message()), d.dismiss()))
  it.quiet = async (where) => {
    await it.page.waitForTimeout(150)
    assert.equal(await it.page.evaluate('window.__xss'), undefined, `${where}: something ran`)
    assert.deepEqual(it.dialogs, [], where)
    const made = await it.page.locator('img[src=x], svg[onload], iframe, a[href^="javascript:"], script:not([src])').count()
    assert.equal(made, 0, `${where}: text became elements`)
  }
  return it
}
const { page, quiet, complaints } = await watched()
let id

check('control: a page that takes text for markup', async () => {
  const plain = await watched()
  for (const p of [payloads[1], payloads[2], payloads[3]]) {
    await plain.page.goto('about:blank')
    await plain.page.setContent(`<p>${p.replace('">', '">')}</p>`)
    await eventually(() => plain.page.evaluate('window.__xss !== undefined'), `the watcher sees ${p}`)
    await assert.rejects(plain.quiet('control'))
  }
  await plain.page.setContent('<script>alert(1)</script>')
  await eventually(() => plain.dialogs.length > 0, 'the watcher sees a dialog')
  await plain.context.close()
})

check('control: the policy stops what became markup', async () => {
  const it = await watched()
  await it.page.evaluate((html) => document.body.insertAdjacentHTML('beforeend', html), payloads.slice(1, 4).join(''))
  await it.page.waitForTimeout(500)
  assert.equal(await it.page.evaluate('window.__xss'), undefined)
  assert.ok(it.complaints.some((c) => /Content Security Policy/.test(c)), `nobody complained: ${it.complaints}`)
  await it.context.close()
})

check('it is put wherever it may be', async () => {
  const made = await api('POST', '/v1/sandboxes', { name: 'box', labels: Object.fromEntries(payloads.map((p, i) => [`l${i}`, p])), env: { HOSTILE: all } })
  assert.equal(made.status, 201, made.text)
  id = made.json.id
  const ran = await api('POST', '/v1/sandboxes/box/exec', { shell: 'printf %s "$HOSTILE"; printf %s "$HOSTILE" >&2; cd /workspace; i=0; printf "%s\\n" "$HOSTILE" | while IFS= read -r l; do n=$(printf %s "$l" | tr / _); touch -- "$n"; mkdir -- "d$n"; ln -s -- "$l" "l$i"; i=$((i+1)); done' })
  assert.equal(ran.json.exit_code, 0, ran.text)
  const stays = await api('POST', '/v1/sandboxes/box/processes', { command: ['sleep', '600'], tag: 'x' })
  assert.ok(stays.status < 300, stays.text)
  await api('POST', '/v1/sandboxes/box/processes', { shell: `sleep 600; : '${payloads[1].replaceAll("'", '')}'` })
  const refused = []
  for (const p of payloads) {
    for (const [path, body] of [
      ['/v1/keys', { name: p, role: 'viewer' }],
      ['/v1/tenants', { name: p, quota: {}, ceilings: { images: [p] } }],
      ['/v1/workspaces', { name: p }],
      ['/v1/sandboxes', { name: p }],
      ['/v1/sandboxes', { image: p }],
      ['/v1/images/pull', { ref: p }],
    ]) {
      const r = await api('POST', path, body)
      assert.ok(r.status < 500 || r.status === 503, `${path}: ${r.status} ${r.text}`)
      if (r.status >= 300) refused.push(path)
    }
    await api('PUT', `/v1/secrets/${encodeURIComponent(p)}`, { value: p })
    await api('POST', '/v1/run', { language: p, code: p })
    await api('PUT', '/v1/providers/self_managed', { config: { endpoint: p } })
  }
  assert.equal((await api('POST', '/v1/tenants', { name: 'hostile', quota: {}, ceilings: { images: [shown.slice(0, 60)] } })).status < 300, true)
  await api('PUT', '/v1/routing', { order: ['gvisor'], regions: payloads })
  const saved = await api('PUT', '/v1/providers/self_managed', { config: { endpoint: 'http://127.0.0.1:1', authority: '' }, terms: { region: shown } })
  assert.ok(saved.status < 300, saved.text)
  console.log(`${refused.length} of ${6 * payloads.length} were refused as names`)
})

check('the sandbox', async () => {
  await login(page)
  await visit(page, 'Sandboxes')
  await quiet('sandboxes')
  await page.getByRole('link', { name: 'box', exact: true }).click()
  await page.getByText(shown).first().waitFor() // as text, among the labels
  await quiet('overview')
  await shot(page, 'hostile-sandbox')
  await page.getByRole('tab', { name: 'Files' }).click()
  await page.getByText(shown).first().waitFor()
  await quiet('files')
  for (const name of await page.getByRole('table').getByRole('link', { name: /^Download/ }).all()) assert.match(await name.getAttribute('href'), /^\/v1\/sandboxes\/box\/files\/content\?path=/)
  await shot(page, 'hostile-files')
  await page.getByRole('button', { name: 'Remove' }).nth(2).click()
  await page.getByRole('dialog').waitFor()
  await quiet('remove a file')
  await page.getByRole('button', { name: 'Cancel' }).click()
  await page.getByRole('tab', { name: 'Processes' }).click()
  await page.getByText(shown.slice(1, 8)).first().waitFor()
  await quiet('processes')
  await page.getByRole('tab', { name: 'Logs' }).click()
  await page.getByRole('tabpanel').waitFor()
  await quiet('logs')
  for (const name of ['Executions', 'Ports', 'Policy', 'Audit']) {
    await page.getByRole('tab', { name }).click()
    await page.getByRole('tabpanel').waitFor()
    if (name === 'Executions') {
      await page.getByRole('row', { name: /printf/ }).first().click()
      await page.getByRole('dialog').getByText(shown).first().waitFor()
      await quiet('an execution')
      await page.keyboard.press('Escape')
      await page.getByRole('dialog').waitFor({ state: 'hidden' })
    }
    await quiet(name)
  }
  // Files of a sandbox are shown as text, and pictures run no scripts.
  for (const [name, text] of [['page.html', all], ['evil.svg', `<svg xmlns="http://www.w3.org/2000/svg" onload="${mark(13)}"><script>${mark(14)}</script></svg>`]]) {
    const put = await api('PUT', `/v1/sandboxes/box/files/content?path=/workspace/${name}`, text, 'application/octet-stream')
    assert.ok(put.status < 300, put.text)
  }
  await page.getByRole('tab', { name: 'Files' }).click()
  for (const name of ['page.html', 'evil.svg']) {
    await page.getByRole('button', { name, exact: true }).click()
    await page.getByTestId('preview').locator('pre, img').first().waitFor()
    await quiet(`a preview of ${name}`)
    await page.keyboard.press('Escape')
    await page.getByTestId('preview').waitFor({ state: 'hidden' })
  }
})

check('the terminal', async () => {
  await page.getByRole('tab', { name: 'Terminal' }).click()
  const terminal = page.getByTestId('terminal')
  await eventually(async () => /[#$]\s*$/.test((await terminal.locator('.xterm-rows').innerText()).trimEnd()), 'the shell asks')
  await page.keyboard.type('printf "%s\\n" "$HOSTILE"; printf "\\033]0;$HOSTILE\\007\\033[c\\033[6n"; echo do""ne\n')
  await terminal.getByText('done').first().waitFor()
  await quiet('terminal')
  await shot(page, 'hostile-terminal')
})

check('a program', async () => {
  await page.keyboard.press('Escape')
  await visit(page, 'Run')
  const code = `import sys\ntext = ${JSON.stringify(all)}\nprint(text)\ndef main(name):\n    print(name, file=sys.stderr)\n    raise ValueError(text)\n`
  await page.getByRole('textbox', { name: 'Code' }).fill(code)
  await page.getByLabel(/Arguments of main/).fill(JSON.stringify({ name: all }))
  await page.getByRole('button', { name: 'Run', exact: true }).click()
  await page.getByTestId('outcome').waitFor()
  assert.ok((await page.getByTestId('output').innerText()).includes(shown))
  await quiet('a program')
})

check('every other page', async () => {
  for (const name of ['Overview', 'Runs', 'Images & templates', 'Workspaces', 'Secrets', 'Usage', 'Keys', 'Audit', 'Tenants', 'Providers', 'Pool & host']) {
    await visit(page, name)
    await page.waitForTimeout(700)
    if (name === 'Audit') {
      await page.getByLabel('Search entries').fill('onerror')
      await page.getByRole('row', { name: /sandbox.create/ }).first().getByRole('button', { name: /^Details/ }).click()
      await page.getByRole('dialog').getByText(shown).first().waitFor()
      await quiet('an entry of the log')
      await page.keyboard.press('Escape')
      await page.getByRole('dialog').waitFor({ state: 'hidden' })
    }
    if (['Keys', 'Tenants'].includes(name)) assert.ok((await page.getByRole('main').innerText()).includes('onerror'), `${name} does not show it`)
    await quiet(name)
    await shot(page, `hostile-${name.toLowerCase().replace(/\W+/g, '-')}`)
  }
  await visit(page, 'Providers')
  await page.getByTestId('provider-self_managed').getByRole('button', { name: 'Settings' }).click()
  const form = page.getByRole('dialog')
  await form.getByRole('textbox', { name: 'Endpoint', exact: true }).fill(payloads[1])
  await form.getByRole('textbox', { name: 'Pinned key', exact: true }).fill(payloads[3])
  await form.getByRole('button', { name: 'Save' }).click()
  await form.getByRole('alert').waitFor()
  await quiet('errors of a form')
  await page.keyboard.press('Escape')
  await form.waitFor({ state: 'hidden' })
})

check('every field of every provider', async () => {
  const { json } = await api('GET', '/v1/providers')
  const form = page.getByRole('dialog')
  let filled = 0
  for (const p of json.providers.filter((p) => p.fields?.length)) {
    for (const f of p.fields.filter((f) => f.type === 'string')) {
      for (const text of payloads) {
        const r = await api('PUT', `/v1/providers/${p.id}`, { config: { [f.name]: text }, test: true })
        assert.ok(r.status >= 400 && r.status < 600 && r.status !== 500, `${p.id}.${f.name}: ${r.status} ${r.text}`)
      }
    }
    await page.getByTestId(`provider-${p.id}`).getByRole('button', { name: /Settings|Configure/ }).click()
    await form.waitFor()
    for (const input of await form.locator('textarea:visible, input:visible:not([type=checkbox]):not([inputmode]):not([readonly]):not([disabled])').all()) {
      await input.fill(payloads[filled++ % payloads.length])
    }
    await quiet(`the fields of ${p.id}`)
    await form.getByRole('button', { name: 'Save' }).click()
    await form.getByRole('alert').first().waitFor()
    await quiet(`what is wrong with the fields of ${p.id}`)
    await shot(page, `hostile-fields-${p.id}`)
    await page.keyboard.press('Escape')
    await form.waitFor({ state: 'hidden' })
  }
  assert.ok(filled > 40, `only ${filled} fields were filled in`)
})

check('nothing was tried', async () => {
  assert.deepEqual(complaints.filter((c) => /Content Security Policy|uncaught/.test(c)), [])
})

await run()
