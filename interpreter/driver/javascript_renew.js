// The request "renew": this process continues in a copy of its sandbox, and other
// copies have the same memory. Node.js cannot reseed V8's generator or OpenSSL's.
// Instead, Math.random reads the kernel's generator from then on, and crypto and Web
// Crypto mix bytes from it into their results. Operations inside OpenSSL (the
// generation of keys, TLS) are not renewed.
'use strict';
const crypto = require('crypto');
const fs = require('fs');
const { apply } = Reflect;
const { readSync } = fs;

const pool = Buffer.allocUnsafeSlow(8192);
let used = pool.length;
let urandom;

// urandomBytes returns n bytes of the kernel's random generator. The next call overwrites them.
function urandomBytes(n) {
  if (used + n > pool.length) {
    for (let read = 0; read < pool.length; ) read += readSync(urandom, pool, read, pool.length - read, null);
    used = 0;
  }
  used += n;
  return pool.subarray(used - n, used);
}

// xorUrandom changes every byte of a buffer or an array of numbers.
function xorUrandom(view, offset = 0, size) {
  const bytes = ArrayBuffer.isView(view) ? new Uint8Array(view.buffer, view.byteOffset, view.byteLength) : new Uint8Array(view);
  const width = view.BYTES_PER_ELEMENT || 1;
  const end = size === undefined ? bytes.length : (offset + size) * width;
  for (let at = offset * width; at < end; ) {
    const part = urandomBytes(Math.min(end - at, pool.length));
    for (let i = 0; i < part.length; i++) bytes[at++] ^= part[i];
  }
  return view;
}

// randomBelow returns a number from 0 to n - 1, for n up to 2 ** 48.
function randomBelow(n) {
  const most = 2 ** 48 - (2 ** 48 % n);
  for (;;) {
    const r = urandomBytes(6).readUIntLE(0, 6);
    if (r < most) return r % n;
  }
}

function uuid() {
  const bytes = Buffer.from(urandomBytes(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  return bytes.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}

// replace replaces a function of an object with a wrapper.
function replace(object, name, make) {
  const original = object[name];
  if (typeof original !== 'function') return;
  const value = { [name]: make(original) }[name];
  Object.defineProperty(object, name, { ...Object.getOwnPropertyDescriptor(object, name), value });
}

let replaced = false;

function renew() {
  used = pool.length; // every copy has the same unused bytes
  if (replaced) return;
  replaced = true;
  urandom = fs.openSync('/dev/urandom', 'r');
  replace(Math, 'random', () => () => {
    const b = urandomBytes(8);
    return (b.readUInt32LE(0) * 2 ** 21 + (b.readUInt32LE(4) >>> 11)) / 2 ** 53;
  });
  // The originals check the arguments.
  replace(crypto, 'randomBytes', (original) => (size, done) => {
    if (done === undefined) return xorUrandom(original(size));
    return original(size, (err, bytes) => done(err, err ? bytes : xorUrandom(bytes)));
  });
  replace(crypto, 'randomFillSync', (original) => (view, offset, size) => xorUrandom(original(view, offset, size), offset, size));
  replace(crypto, 'randomFill', (original) => (view, ...rest) => {
    const done = rest.pop();
    const [offset, size] = rest;
    return original(view, ...rest, typeof done === 'function' ? (err) => done(err, err ? undefined : xorUrandom(view, offset, size)) : done);
  });
  replace(crypto, 'randomInt', (original) => (...args) => {
    const done = typeof args[args.length - 1] === 'function' ? args.pop() : undefined;
    original(...args);
    const [low, high] = args.length > 1 ? args : [0, args[0]];
    const n = low + randomBelow(high - low);
    if (!done) return n;
    process.nextTick(done, undefined, n);
  });
  replace(crypto, 'randomUUID', (original) => (options) => {
    original(options);
    return uuid();
  });
  const web = crypto.webcrypto && Object.getPrototypeOf(crypto.webcrypto);
  if (web) {
    replace(web, 'getRandomValues', (original) =>
      function getRandomValues(view) {
        return xorUrandom(apply(original, this, [view]));
      });
    replace(web, 'randomUUID', (original) =>
      function randomUUID() {
        apply(original, this, []);
        return uuid();
      });
  }
  require('module').syncBuiltinESMExports();
}

module.exports = { renew };
