// Letta's clients, with only an address and a key. The older one has a method that
// runs a tool. For the newer one, use get, post, patch and delete.
import { Letta } from '@letta-ai/letta-client'
import { LettaClient } from 'letta-client-older'

export const letta = new Letta({ baseURL: process.env.LETTA_BASE_URL, apiKey: process.env.LETTA_API_KEY, maxRetries: 0 })
export const older = new LettaClient({ baseUrl: process.env.LETTA_BASE_URL, token: process.env.LETTA_API_KEY })
export const rival = new Letta({ baseURL: process.env.LETTA_BASE_URL, apiKey: process.env.LETTA_RIVAL_KEY ?? 'none', maxRetries: 0 })

// run runs a tool with the newer client, and returns the complete response.
export const run = (source_code, args = {}, more = {}) => letta.post('/v1/tools/run', { body: { source_code, args, ...more } })
export const config = (method, path = '', body) => letta[method](`/v1/sandbox-config${path}`, body === undefined ? {} : { body })
