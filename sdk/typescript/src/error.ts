/** The errors of the client. */

import type * as wire from './wire.js'

/** An error of the server: a message, a stable code, the invalid option, and a hint with the fix. */
export class BrigError extends Error {
  constructor(
    message: string,
    readonly code: string,
    readonly kind: string,
    readonly field = '',
    readonly hint = '',
    readonly status = 0,
    options?: ErrorOptions,
    /** Milliseconds after which to retry, or 0. */
    readonly retryAfterMs = 0,
  ) {
    super(message, options)
    this.name = 'BrigError'
  }
}

/** Returns the error for an option that the client rejects itself. */
export function invalid(message: string, field: string, hint: string): BrigError {
  return new BrigError(message, 'SB010', 'invalid_argument', field, hint)
}

/** Returns the error for a server that cannot be reached. */
export function unreachable(message: string, url: string, cause?: unknown): BrigError {
  const options = cause === undefined ? undefined : { cause }
  return new BrigError(message, 'SB003', 'connection_failed', '', `check that brig serve runs at ${url}`, 0, options)
}

/** Returns the error in a response. */
export function refusal(status: number, text: string, url: string, retryAfter: string | null = null): BrigError {
  try {
    const { code, kind, message, field, hint } = (JSON.parse(text) as wire.ErrorAnswer).error
    if (code && kind) return new BrigError(message ?? '', code, kind, asOption(field), asOptions(hint), status, undefined, Number(retryAfter) * 1000 || 0)
  } catch {
    // The response is not Brig's.
  }
  const hint = `check that brig serve runs at ${url}`
  return new BrigError(`the response is not from a Brig server (HTTP ${status})`, 'SB003', 'connection_failed', '', hint, status)
}

function camel(name: string): string {
  return name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())
}

/** Returns the option that sets a field of REST. Names in a nested object are the same in both. */
function asOption(field = ''): string {
  return field
    .replace(/^egress\.(?:rules\b|(?=bandwidth$))/, (prefix) => (prefix === 'egress.' ? '' : 'egress'))
    .replace(/^[a-z_]+_b64\b/, (name) => name.slice(0, -4))
    .replace(/^[a-z_]+/, camel)
}

/** Returns a text of REST in which options replace the names of fields. */
export function asOptions(text = ''): string {
  return text
    .replace(/(?<![\w.])(?:timeout|ttl|grace|pause_after|freeze_after)_ms\b/g, camel)
    .replace(/(?<![\w.])(?:pause_at_end|pause_files_only|files_only|default_user|default_cwd|fixed_lease|command_env|context_id)\b/g, camel)
    .replace(/\begress\.rules\b/g, 'egress')
    .replace(/\b(value|stdin|content)_b64\b/g, '$1')
}
