// Answers the calls of output_matrix_test.go with E2B's JavaScript SDK: a JSON
// document per line.
import { createInterface } from 'node:readline'
import { CommandExitError, Sandbox } from '@e2b/code-interpreter'

const timeoutMs = 120_000
const box = await Sandbox.create(process.env.TEMPLATE, { timeoutMs: 12 * 3600_000 })

const forms = {
  async cell({ language, code }) {
    const r = await box.runCode(code, { language, timeoutMs })
    return { stdout: r.logs.stdout.join(''), stderr: r.logs.stderr.join(''), error: r.error?.name, value: r.error?.value }
  },
  async command({ code }) {
    const r = await box.commands.run(code, { timeoutMs }).catch((err) => {
      if (err instanceof CommandExitError) return err
      throw err
    })
    return { stdout: r.stdout, stderr: r.stderr, exit: r.exitCode }
  },
}

try {
  for await (const line of createInterface({ input: process.stdin })) {
    const call = JSON.parse(line)
    const answer = await forms[call.form](call).catch((err) => ({ failure: String(err).slice(0, 2000) }))
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
} finally {
  await box.kill()
}
