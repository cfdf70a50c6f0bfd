// The documentation in a browser, without a key.
import { browser, shot, url } from './browser.mjs'
import { assert, check, run } from './harness.mjs'

const context = await browser.newContext({ viewport: { width: 1280, height: 850 } })
context.setDefaultTimeout(30_000)
const page = await context.newPage()
const complaints = []
page.on('console', (m) => m.type() === 'error' && complaints.push(`${m.text()} (${m.location().url})`))
page.on('pageerror', (e) => complaints.push(`uncaught: ${e.message}`))
page.on('request', (r) => r.url().startsWith(url) || complaints.push(`request to ${r.url()}`))

check('read the start page', async () => {
  await page.goto(`${url}/docs/`)
  await page.getByRole('heading', { level: 1 }).first().waitFor()
  await shot(page, 'docs')
})

check('search', async () => {
  const query = page.getByRole('textbox', { name: 'Search' })
  await query.click()
  await query.pressSequentially('SB010')
  const found = page.locator('.md-search-result__link').filter({ hasText: 'Error codes' }).first()
  await found.waitFor()
  await shot(page, 'docs-search')
  await found.click()
  await page.waitForURL(/\/docs\/reference\/errors\.html/)
  await page.getByRole('heading', { level: 1, name: 'Error codes' }).waitFor()
})

check('the policy allows everything, and nothing comes from another server', async () => {
  assert.deepEqual(complaints, [])
})

await run()
