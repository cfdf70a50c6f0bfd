// Resolves names of the tests' domain to this machine, like a wildcard DNS record.
const dns = require('node:dns')
const lookup = dns.lookup
dns.lookup = (name, options, done) => {
  if (typeof options === 'function') [options, done] = [{}, options]
  if (!String(name).endsWith('.e2b.test')) return lookup(name, options, done)
  return options?.all ? done(null, [{ address: '127.0.0.1', family: 4 }]) : done(null, '127.0.0.1', 4)
}
