// A browser that shows the console, and what it complained about.
import { chromium } from 'playwright-core'

const { CHROMIUM, BRIG_URL, BRIG_KEY, SHOTS } = process.env
export const url = BRIG_URL

export const browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] })

// open shows the console, to somebody who has not said yet who they are.
export async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 850 }, ...options })
  context.setDefaultTimeout(Number(process.env.PATIENCE ?? 15_000))
  const page = await context.newPage()
  const complaints = []
  page.on('console', (m) => m.type() === 'error' && complaints.push(`${m.text()} (${m.location().url})`))
  page.on('pageerror', (e) => complaints.push(`uncaught: ${e.message}`))
  await page.goto(`${url}/console/`)
  return { context, page, complaints }
}

export async function login(page, key = BRIG_KEY) {
  await page.getByLabel('API key').fill(key)
  await page.getByRole('button', { name: 'Log in' }).click()
  await page.getByTestId('who').waitFor()
}

// visit goes to one of the pages by its link.
export async function visit(page, name) {
  await page.getByRole('link', { name, exact: false }).filter({ hasText: name }).first().click()
  await page.getByRole('heading', { level: 3 }).first().waitFor()
}

// api asks the server as anybody with the key.
export async function api(method, path, body, type = 'application/json') {
  const r = await fetch(url + path, {
    method,
    headers: { Authorization: `Bearer ${BRIG_KEY}`, ...(body === undefined ? {} : { 'Content-Type': type }) },
    body: body === undefined || typeof body === 'string' ? body : JSON.stringify(body),
  })
  const text = await r.text()
  return { status: r.status, text, json: (() => { try { return JSON.parse(text) } catch { return undefined } })() }
}

// shot keeps a picture, in light and dark, if somebody wants to look at them.
export async function shot(page, name) {
  if (!SHOTS) return
  for (const scheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme: scheme })
    await page.waitForTimeout(250)
    await page.screenshot({ path: `${SHOTS}/${name}-${scheme}.png` })
  }
}
