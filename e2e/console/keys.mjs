// The console without a mouse, without data, and without a server.
import { api, login, open, shot, visit } from './browser.mjs'
import { assert, check, eventually, run } from './harness.mjs'

const { page } = await open()

check('log in with the keyboard', async () => {
  await page.getByLabel('API key').waitFor()
  assert.equal(await page.evaluate(() => document.activeElement.tagName), 'INPUT')
  await page.keyboard.type('brig_wrong')
  await page.keyboard.press('Enter')
  await page.getByRole('alert').waitFor()
  await shot(page, 'login-wrong')
  await page.getByLabel('API key').focus()
  await page.keyboard.press('Control+A')
  await page.keyboard.type(process.env.BRIG_KEY)
  await page.keyboard.press('Enter')
  await page.getByTestId('who').waitFor()
})

const pages = { O: 'Overview', L: 'Runs', S: 'Sandboxes', I: 'Images', W: 'Workspaces', E: 'Secrets', U: 'Usage', K: 'Keys', A: 'Audit', T: 'Tenants', P: 'Providers', H: 'Pool', R: 'Run' }

check('each page has its key', async () => {
  for (const [key, title] of Object.entries(pages)) {
    await page.getByRole('navigation').getByRole('link').first().focus()
    await page.keyboard.press(`Shift+${key}`)
    await page.getByRole('heading', { level: 1, name: title, exact: true }).waitFor()
  }
})

check('typing is no shortcut', async () => {
  await page.getByRole('textbox', { name: 'Code' }).focus()
  await page.keyboard.press('Shift+S')
  await page.getByLabel(/Arguments of main/).focus()
  await page.keyboard.press('Shift+S')
  await page.getByRole('heading', { level: 1, name: 'Run', exact: true }).waitFor()
})

check('what is empty says so', async () => {
  for (const [title, says] of [['Sandboxes', 'There are no sandboxes.'], ['Workspaces', 'There are no workspaces.'], ['Secrets', 'There are no secrets.']]) {
    await visit(page, title)
    await page.getByText(says).waitFor()
  }
  await page.goto(`${process.env.BRIG_URL}/console/no/such/page`)
  await page.getByText('There is no page at this address').waitFor()
})

// Every control can be reached with Tab, and has a name.
check('Tab reaches everything, and everything has a name', async () => {
  for (const title of ['Sandboxes', 'Workspaces', 'Secrets', 'Usage', 'Keys', 'Audit', 'Tenants', 'Providers']) {
    await visit(page, title)
    await page.waitForTimeout(600)
    const can = await page.evaluate(() => {
      const all = [...document.querySelectorAll('a[href], button, input, textarea, select, [role=tab]')]
      const open = all.filter((e) => e.checkVisibility() && !e.disabled && e.type !== 'hidden' && e.tabIndex >= 0 && !(e.type === 'radio' && !e.checked)) // Tab reaches one of a group
      open.forEach((e, i) => (e.dataset.stop = i))
      const unnamed = open.filter((e) => !(e.ariaLabel || e.innerText?.trim() || e.labels?.length || e.getAttribute('aria-labelledby')))
      return { count: open.length, unnamed: unnamed.map((e) => e.outerHTML.slice(0, 200)) }
    })
    assert.deepEqual(can.unnamed, [], `${title}: without names`)
    assert.ok(can.count > 12, `${title}: ${can.count}`)
    await page.evaluate(() => document.activeElement.blur())
    const seen = new Set()
    for (let i = 0; i < can.count * 2 + 20 && seen.size < can.count; i++) {
      await page.keyboard.press('Tab')
      const stop = await page.evaluate(() => document.activeElement?.dataset.stop)
      if (stop !== undefined) seen.add(stop)
    }
    assert.equal(seen.size, can.count, `${title}: Tab reaches ${seen.size} of ${can.count}`)
  }
})

check('the editor can be left', async () => {
  await visit(page, 'Run')
  const code = page.getByRole('textbox', { name: 'Code' })
  await code.focus()
  await page.keyboard.press('Escape')
  await page.keyboard.press('Tab')
  await eventually(() => page.evaluate(() => document.activeElement?.getAttribute('aria-label') !== 'Code'), 'it is left')
  await code.focus()
  await page.keyboard.press('Control+Enter')
  await page.getByTestId('outcome').waitFor()
})

check('a dialog keeps the focus and gives it back', async () => {
  await visit(page, 'Sandboxes')
  const button = page.getByRole('button', { name: 'Create', exact: true })
  await button.focus()
  await page.keyboard.press('Enter')
  await page.getByRole('dialog').waitFor()
  await eventually(() => page.evaluate(() => !!document.activeElement?.closest('[role=dialog]')), 'the dialog has the focus')
  for (let i = 0; i < 12; i++) {
    await page.keyboard.press('Tab')
    assert.ok(await page.evaluate(() => !!document.activeElement?.closest('[role=dialog]')), 'the focus has left the dialog')
  }
  await page.keyboard.press('Escape')
  await page.getByRole('dialog').waitFor({ state: 'hidden' })
  await eventually(() => button.evaluate((b) => b === document.activeElement), 'the focus comes back')
})

check('no sandbox of that name', async () => {
  await page.goto(`${process.env.BRIG_URL}/console/sandboxes/nobody`)
  await page.getByRole('alert').waitFor()
  assert.match(await page.getByRole('alert').innerText(), /nobody/)
})

check('a session that was ended elsewhere', async () => {
  await visit(page, 'Keys')
  const { json } = await api('GET', '/v1/auth/sessions')
  for (const s of json.sessions) await api('DELETE', `/v1/auth/sessions/${s.id}`)
  await page.getByLabel('API key').waitFor()
  await login(page)
})

check('a server that has gone', async () => {
  await visit(page, 'Sandboxes')
  process.kill(Number(process.env.BRIG_PID), 'SIGKILL')
  await page.getByRole('alert').getByText(/cannot be reached/).waitFor()
  await shot(page, 'gone')
})

await run()
