// Runs named checks in order and prints the result of each on a line, for
// e2b_test.go. Clients get their settings from the environment, as users set them.
import assert from 'node:assert/strict'

const checks = []
export const check = (name, f) => checks.push([name, f])
export { assert }

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms))

export async function eventually(f, what, ms = 30_000) {
  const end = Date.now() + ms
  for (;;) {
    if (await f()) return
    if (Date.now() > end) throw new Error(`it does not happen that ${what}`)
    await sleep(20)
  }
}

export async function rejects(promise, kind, text = /./) {
  try {
    await promise
  } catch (err) {
    assert.equal(err.constructor.name, kind.name ?? kind, `${err}`)
    assert.match(String(err.message), text)
    return err
  }
  assert.fail(`no ${kind.name ?? kind}`)
}

export async function run() {
  const only = process.argv[2]
  let failed = 0
  for (const [name, f] of checks) {
    if (only && !name.includes(only)) continue
    let timer
    const late = new Promise((_, no) => (timer = setTimeout(() => no(new Error('it takes too long')), 90_000)))
    try {
      await Promise.race([f(), late])
      console.log(`ok ${name}`)
    } catch (err) {
      failed++
      console.log(`FAIL ${name}: ${(err.stack ?? String(err)).replaceAll('\n', '\n     ')}`)
    } finally {
      clearTimeout(timer)
    }
  }
  process.exit(failed ? 1 : 0)
}
