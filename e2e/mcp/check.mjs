// Helpers of all checks: a client for one generation of the protocol, and the
// report of each check.

// transports are those of the generation in BRIG_MCP_CLIENT: "sdk" has sessions,
// "client" has none.
const modules = {
  sdk: async () => ({
    ...(await import('@modelcontextprotocol/sdk/client/index.js')),
    ...(await import('@modelcontextprotocol/sdk/client/streamableHttp.js')),
    ...(await import('@modelcontextprotocol/sdk/client/stdio.js')),
    options: {},
    call: (c, params, options) => c.callTool(params, undefined, options)
  }),
  client: async () => ({
    ...(await import('@modelcontextprotocol/client')),
    ...(await import('@modelcontextprotocol/client/stdio')),
    options: { versionNegotiation: { mode: process.env.BRIG_MCP_MODE ?? 'auto' } },
    call: (c, params, options) => c.callTool(params, options)
  })
}

export const generation = process.env.BRIG_MCP_CLIENT ?? 'sdk'
const lib = await modules[generation]()

// connect returns a client over HTTP, or over the standard streams of a command.
export async function connect(key = process.env.BRIG_API_KEY) {
  const client = new lib.Client({ name: 'brig-tests', version: '1' }, lib.options)
  const command = process.env.BRIG_MCP_COMMAND
  const transport = command
    ? new lib.StdioClientTransport({ command, args: JSON.parse(process.env.BRIG_MCP_ARGS), env: process.env, stderr: 'inherit' })
    : new lib.StreamableHTTPClientTransport(new URL(process.env.BRIG_MCP_URL), { requestInit: { headers: { Authorization: `Bearer ${key}` } } })
  await client.connect(transport)
  client.tool = async (name, args = {}, options = undefined) => lib.call(client, { name, arguments: args }, options)
  client.transportOf = transport
  return client
}

// good returns the structured result of a tool, and fails if the tool failed.
export async function good(client, name, args, options) {
  const res = await client.tool(name, args, options)
  if (res.isError) throw new Error(`${name}: ${res.content[0].text}`)
  return res.structuredContent
}

export async function check(name, f) {
  try {
    await f()
    console.log(`ok ${name}`)
  } catch (err) {
    console.log(`FAIL ${name}: ${err?.stack ?? err}`)
    process.exitCode = 1
  }
}

export function same(got, want) {
  const [a, b] = [JSON.stringify(got), JSON.stringify(want)]
  if (a !== b) throw new Error(`it is ${a}, want ${b}`)
}
