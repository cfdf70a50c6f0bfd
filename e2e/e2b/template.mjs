// Builds of templates with the E2B SDK.
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { assert, check, rejects, run } from './harness.mjs'

const { Sandbox, Template, BuildError, waitForPort, waitForTimeout } = await import(process.env.E2B_MODULE ?? 'e2b')

const fileContextPath = mkdtempSync(join(process.env.HOME ?? tmpdir(), 'context-'))
mkdirSync(join(fileContextPath, 'folder'))
writeFileSync(join(fileContextPath, 'folder', 'test.txt'), 'first\n')
writeFileSync(join(fileContextPath, 'folder', 'other.txt'), 'other\n')
const size = { cpuCount: 1, memoryMB: 512 }
const shell = async (box, command) => (await box.commands.run(command)).stdout.trim()

check('build', async () => {
  const logs = []
  const template = Template({ fileContextPath })
    .fromBaseImage()
    .copy('folder/*.txt', 'folder', { forceUpload: true })
    .setEnvs({ ENV_1: 'value1', ENV_2: 'value2' })
    .runCmd('cat folder/test.txt')
    .makeDir('made', { mode: 0o700 })
    .makeSymlink('folder/test.txt', 'link')
    .rename('folder/other.txt', 'renamed.txt')
    .remove('made', { recursive: true })
    .setWorkdir('/app')
    .setStartCmd('exec python3 -m http.server 8123', waitForPort(8123))
  const info = await Template.build(template, 'js-web', { ...size, onBuildLogs: (l) => logs.push(l.message) })
  assert.ok(info.templateId && info.buildId)
  assert.ok(logs.includes('first'), logs.join('\n'))
  const box = await Sandbox.create('js-web', { timeoutMs: 60_000, envs: { ENV_2: 'other' } })
  try {
    assert.equal(await shell(box, 'pwd; echo $ENV_1 $ENV_2; cat ~/link ~/renamed.txt; ls ~/made 2>/dev/null; cat /proc/net/tcp | grep -c :1FBB'), '/app\nvalue1 other\nfirst\nother\n1')
    const details = await box.getInfo()
    assert.equal(details.templateId, info.templateId)
    assert.equal(details.name, 'js-web')
    assert.equal(details.memoryMB, 512)
  } finally {
    await box.kill()
  }
})

check('dockerfile', async () => {
  const template = Template({ fileContextPath }).fromDockerfile(`FROM e2bdev/base
ENV GREETING=hello
WORKDIR /srv
COPY folder/test.txt ./copied.txt
RUN echo "$GREETING" > said && id -un >> said
`)
  await Template.build(template, 'js-docker', size)
  const box = await Sandbox.create('js-docker', { timeoutMs: 60_000 })
  try {
    assert.equal(await shell(box, 'cat /srv/copied.txt /srv/said; pwd; id -un'), 'first\nhello\nroot\n/srv\nuser')
  } finally {
    await box.kill()
  }
})

check('failures', async () => {
  const failed = Template().fromBaseImage().runCmd('echo why >&2; false')
  await rejects(Template.build(failed, 'js-failed', size), BuildError, /why/)
  const other = Template().fromBaseImage().runCmd('whoami', { user: 'root123' })
  await rejects(Template.build(other, 'js-failed', size), BuildError, /failed to run command 'whoami': command failed: unauthenticated: invalid username: 'root123'/)
  const start = Template().fromBaseImage().setStartCmd('./no/such', waitForTimeout(10_000))
  await rejects(Template.build(start, 'js-failed', size), BuildError)
  await rejects(Template.build(Template().fromTemplate('js-none'), 'js-failed', size), BuildError, /js-none/)
})

check('background', async () => {
  const template = Template().fromBaseImage().runCmd('sleep 3')
  const info = await Template.buildInBackground(template, 'js-slow', size)
  assert.equal((await Template.getBuildStatus(info)).status, 'building')
  for (let i = 0; i < 300 && (await Template.getBuildStatus(info)).status === 'building'; i++) {
    await new Promise((r) => setTimeout(r, 100))
  }
  assert.equal((await Template.getBuildStatus(info)).status, 'ready')
  assert.equal(await Template.exists('js-slow'), true)
  assert.equal(await Template.exists('js-none'), false)
})

await run()
