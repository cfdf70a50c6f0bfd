// Answers the calls of output_matrix_test.go with the protocol's own client: a
// JSON document per line.
import { createInterface } from 'node:readline'
import { connect, good } from './check.mjs'

const timeout_seconds = 120
const client = await connect()
const image = process.env.IMAGE
const { name: sandbox } = await good(client, 'create_sandbox', { image, ttl_seconds: 3600 })

const plain = ({ stdout, stderr, exit_code, error }) => ({ stdout, stderr, exit: exit_code, error: error?.name, value: error?.message })
const options = { timeout: 1000 * (timeout_seconds + 60) }
const forms = {
  run: ({ language, code }) => good(client, 'run_code', { image, language, code, timeout_seconds }, options),
  cell: ({ language, code }) => good(client, 'run_code', { sandbox, language, code, timeout_seconds }, options),
  command: ({ code }) => good(client, 'run_shell', { sandbox, command: code, timeout_seconds }, options)
}

for await (const line of createInterface({ input: process.stdin })) {
  const call = JSON.parse(line)
  const answer = await forms[call.form](call).then(plain, err => ({ failure: String(err).slice(0, 2000) }))
  process.stdout.write(JSON.stringify(answer) + '\n')
}
await good(client, 'remove_sandbox', { sandbox })
await client.close()
