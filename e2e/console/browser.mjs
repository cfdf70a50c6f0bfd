// A browser with the console, which records errors and warnings.
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { chromium } from 'playwright-core'

import { assert } from './harness.mjs'

const { CHROMIUM, BRIG_URL, BRIG_KEY, SHOTS } = process.env
export const url = BRIG_URL

export const browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] })

// open shows the console without a session.
export async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 850 }, ...options })
  context.setDefaultTimeout(Number(process.env.PATIENCE ?? 60_000))
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

// visit opens a page by its link.
export async function visit(page, name) {
  const link = page.getByRole('navigation').getByRole('link', { name, exact: true })
  const menu = page.getByRole('button', { name: 'Menu' })
  if (await menu.isVisible()) {
    if ((await menu.getAttribute('aria-expanded')) !== 'true') await menu.click()
  }
  await link.click()
  await page.locator('[aria-current=page]', { hasText: name }).waitFor({ state: 'attached' })
  await page.getByRole('heading', { level: 1 }).first().waitFor()
}

const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

// accessible runs every rule of axe on the current page, in the light and the dark scheme.
export async function accessible(page, where) {
  await page.evaluate(axe)
  for (const scheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' })
    await page.waitForFunction((s) => document.documentElement.getAttribute('data-mantine-color-scheme') === s, scheme)
    await page.waitForFunction(() => document.getAnimations().every((a) => a.playState !== 'running' || a.effect?.getTiming().iterations === Infinity))
    const { violations, passes } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations', 'passes'] }))
    assert.ok(passes.length > 10, `${where}: axe has checked ${passes.length} rules only`)
    const found = violations.flatMap((v) => v.nodes.slice(0, 3).map((n) => `${v.id}: ${n.html.slice(0, 200)} ${n.failureSummary?.replaceAll('\n', ' ').slice(0, 250)}`))
    assert.deepEqual(found, [], `${where}, ${scheme}: ${violations.length} violations`)
  }
  await page.emulateMedia({ colorScheme: 'light', reducedMotion: null })
}

// api sends a request to the server with the key.
export async function api(method, path, body, type = 'application/json') {
  const r = await fetch(url + path, {
    method,
    headers: { Authorization: `Bearer ${BRIG_KEY}`, ...(body === undefined ? {} : { 'Content-Type': type }) },
    body: body === undefined || typeof body === 'string' ? body : JSON.stringify(body),
  })
  const text = await r.text()
  return { status: r.status, text, json: (() => { try { return JSON.parse(text) } catch { return undefined } })() }
}

// shot saves screenshots in light and dark, if a folder for them is set.
export async function shot(page, name) {
  if (!SHOTS) return
  for (const scheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme: scheme })
    await page.waitForTimeout(250)
    await page.screenshot({ path: `${SHOTS}/${name}-${scheme}.png` })
  }
}
