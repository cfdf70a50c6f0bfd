// Letta's clients, told nothing but an address and a key. The older one has a
// method for the run of a tool; the newer one reaches what it has no method for
// by its own get, post, patch and delete.
import { Letta } from '@letta-ai/letta-client'
import { LettaClient } from 'letta-client-older'

export const letta = new Letta({ baseURL: process.env.LETTA_BASE_URL, apiKey: process.env.LETTA_API_KEY, maxRetries: 0 })
export const older = new LettaClient({ baseUrl: process.env.LETTA_BASE_URL, token: process.env.LETTA_API_KEY })
export const rival = new Letta({ baseURL: process.env.LETTA_BASE_URL, apiKey: process.env.LETTA_RIVAL_KEY ?? 'none', maxRetries: 0 })

// run runs a tool with the newer client, of which the answer is told whole.
export const run = (source_code, args = {}, more = {}) => letta.post('/v1/tools/run', { body: { source_code, args, ...more } })
export const config = (method, path = '', body) => letta[method](`/v1/sandbox-config${path}`, body === undefined ? {} : { body })
