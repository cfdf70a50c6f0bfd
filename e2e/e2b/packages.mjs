// Builds of templates that install packages with the E2B SDK. PACKAGES is the address of a server with a
// repository for each package manager.
import { assert, check, rejects, run } from './harness.mjs'

const { Sandbox, Template, BuildError } = await import('e2b')

const packages = process.env.PACKAGES
const size = { cpuCount: 1, memoryMB: 512 }

// base is the base image, with the test's repository in place of the image's own package sources.
const base = () =>
  Template()
    .fromBaseImage()
    .runCmd(
      'grep -q ^URIs: /etc/apt/sources.list.d/debian.sources && rm /etc/apt/sources.list.d/debian.sources && ' +
        `echo "deb [trusted=yes] ${packages}/debian ./" > /etc/apt/sources.list.d/test.list`,
      { user: 'root' },
    )
    .setEnvs({
      PIP_INDEX_URL: `${packages}/simple`,
      PIP_TRUSTED_HOST: new URL(packages).hostname,
      NPM_CONFIG_REGISTRY: `${packages}/`,
    })

async function inSandbox(name, command, options) {
  const box = await Sandbox.create(name, { timeoutMs: 60_000 })
  try {
    return (await box.commands.run(command, options)).stdout.trim()
  } finally {
    await box.kill()
  }
}

// about prints what the packages of the test and their scripts have made.
const about =
  'brigtest; stat -c "%U:%G %a" /usr/bin/brigtest /var/lib/brigtest /var/lib/brigtest/made /etc/brigtest.conf; readlink /usr/bin/brigtest-link; dpkg --audit; dpkg-query -W -f "\\${Package} \\${Status}\\n" "brigtest*"'
const installed = `library
root:brigtest 2755
brigtest:brigtest 2775
brigtest:brigtest 644
root:root 644
brigtest
brigtest install ok installed
brigtest-library install ok installed`

check('apt-get', async () => {
  const logs = []
  await Template.build(base().aptInstall(['brigtest']), 'apt', { ...size, onBuildLogs: (l) => logs.push(l.message) })
  assert.ok(logs.some((l) => l.includes('Setting up brigtest (1.0)')), logs.join('\n'))
  assert.equal(await inSandbox('apt', about, { user: 'root' }), installed)
})

check('apt-get in a Dockerfile', async () => {
  const template = Template().fromDockerfile(`FROM e2bdev/base
RUN rm /etc/apt/sources.list.d/* && echo "deb [trusted=yes] ${packages}/debian ./" > /etc/apt/sources.list.d/test.list
RUN apt-get update && \\
    apt-get install -y --no-install-recommends brigtest && \\
    rm -rf /var/lib/apt/lists/*
USER worker
RUN brigtest > ~/said && id -un >> ~/said
`)
  await Template.build(template, 'apt-docker', size)
  assert.equal(await inSandbox('apt-docker', 'cat /home/worker/said', { user: 'root' }), 'library\nworker')
})

check('a failed installation', async () => {
  const names = /E: Unable to locate package brigtest-none/
  await rejects(Template.build(base().aptInstall('brigtest-none'), 'apt-failed', size), BuildError, names)
  const script = /the script of brigtest-broken fails[^]*returned an error code/
  await rejects(Template.build(base().aptInstall('brigtest-broken'), 'apt-failed', size), BuildError, script)
})

check('pip', async () => {
  await Template.build(base().pipInstall('brigtestgreet==1.0'), 'pip', size)
  const where = 'import brigtestgreet; print(brigtestgreet.VERSION, brigtestgreet.__file__.split("/")[1:3])'
  assert.equal(await inSandbox('pip', `python3 -c '${where}'`), `1.0 ['usr', 'local']`)
  await Template.build(base().pipInstall(['brigtestgreet==2.0'], { g: false }), 'pip-user', size)
  assert.equal(await inSandbox('pip-user', `python3 -c '${where}'`), `2.0 ['home', 'user']`)
})

check('npm', async () => {
  const shout = `console.log(require('brig-test-shout').shout('x'))`
  await Template.build(base().npmInstall('brig-test-shout'), 'npm', size)
  assert.equal(await inSandbox('npm', `node -e "${shout}"`), 'X')
  await Template.build(base().npmInstall(['brig-test-shout'], { g: true }), 'npm-global', size)
  assert.equal(await inSandbox('npm-global', `NODE_PATH=$(npm root -g) node -e "${shout}"`), 'X')
})

check('git', async () => {
  await Template.build(base().gitClone(`${packages}/repo.git`, 'clone', { branch: 'main' }), 'git', size)
  assert.equal(await inSandbox('git', 'cat clone/file; git -C clone status --porcelain --branch'), 'content\n## main...origin/main')
})

check('temporary files', async () => {
  // A step of a later build finds what a step of an earlier one has left, and more than fits in the memory.
  const first = () => base().runCmd('head -c 600M /dev/zero > /tmp/big && echo made > /tmp/file')
  await Template.build(first(), 'tmp', size)
  await Template.build(first().runCmd('cp /tmp/file ~/kept && rm /tmp/big && test $(ls /tmp) = file'), 'tmp', size)
  assert.equal(await inSandbox('tmp', 'cat kept; ls /tmp'), 'made')
})

check('free disk space', async () => {
  const fill = () => base().runCmd('head -c 1500M /dev/zero > full')
  await rejects(Template.build(fill(), 'disk', size), BuildError, /No space left on device[^]*minFreeDiskMb/)
  await Template.build(fill().runCmd('rm full'), 'disk', { ...size, minFreeDiskMb: 1024 })
  assert.equal(await inSandbox('disk', 'df --output=size -BG / | tail -n 1'), '2G')
})

await run()
