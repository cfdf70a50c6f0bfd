// An agent's tool in TypeScript: a model's program computes the answer in its own
// sandbox, with arguments that are values.
//
// The server and the key are in BRIG_URL and BRIG_API_KEY.
import { Brig, BrigError } from 'brig'

const brig = new Brig()

interface Call {
  code: string
  arguments: Record<string, unknown>
}

// The calls of a model.
const calls: Call[] = [
  { code: 'function main({ prices }) { return prices.reduce((a, b) => a + b, 0) / prices.length }', arguments: { prices: [3, 4, 8] } },
  { code: 'const main = ({ text }) => [...text].reverse().join("")', arguments: { text: '`${process.exit(1)}` é' } },
  { code: 'function main() { return require("fs").readdirSync("/root") }', arguments: {} },
  { code: 'function main() { for (;;); }', arguments: {} },
]

async function answer(call: Call): Promise<string> {
  try {
    const done = await brig.run(call.code, { language: 'javascript', arguments: call.arguments, timeoutMs: 3_000 })
    // The model reads errors too. The sandbox is removed in both cases.
    return done.error ? `${done.error.code ?? ''} ${done.error.name}`.trim() : JSON.stringify(done.result)
  } catch (e) {
    if (e instanceof BrigError) return `${e.code}: ${e.message} (${e.hint})`
    throw e
  }
}

for (const call of calls) console.log(await answer(call))
