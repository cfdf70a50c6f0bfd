// The driver of tools in TypeScript, which the host compiles to JavaScript. It
// reads one order from descriptor 3, calls a function, and sends a signed report
// to the same descriptor.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { createHmac } from 'node:crypto';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

// References of the driver, so that functions that replace the originals do not
// affect it.
const { readSync, writeSync } = fs;
const { parse, stringify } = JSON;
const exitNow = process.reallyExit.bind(process);

const channel = 3;
const lost = 113;
const parent = process.pid;

function receive() {
  const parts = [];
  for (;;) {
    const part = Buffer.allocUnsafe(1 << 16);
    const n = readSync(channel, part);
    parts.push(part.subarray(0, n));
    if (n === 0 || part.subarray(0, n).includes(10)) return parse(Buffer.concat(parts).toString());
  }
}

function send(text) {
  let data = Buffer.from(text);
  while (data.length > 0) {
    try {
      data = data.subarray(writeSync(channel, data));
    } catch (err) {
      if (err.code === 'EAGAIN') {
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
        continue;
      }
      exitNow(lost);
    }
  }
}

function deliver(key, report) {
  if (process.pid !== parent) exitNow(0);
  const payload = stringify(report);
  const size = Buffer.byteLength(payload);
  const sum = createHmac('sha256', key).update(payload).digest('hex');
  send(`\n{"type":"returning","size":${size}}\n`);
  send(`\n{"type":"report","size":${size},"sum":"${sum}","payload":${stringify(payload)}}\n`);
  // Wait until the host kills the process tree or disconnects.
  try {
    readSync(channel, Buffer.alloc(1));
  } finally {
    exitNow(0);
  }
}

function failure(err) {
  const error = err instanceof Error ? err : new Error(String(err));
  // Remove the driver's frames.
  const traceback = String(error.stack ?? error).split('\n').filter((l) => !/\[eval\d*\]|node:internal/.test(l)).join('\n');
  console.error(traceback);
  return { name: String(error.name || 'Error'), message: String(error.message), traceback };
}

// load imports the source as a module, and returns the function even if the
// source does not export it.
async function load(order) {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'tool-'));
  // Node.js prefers packages in nearer directories, so the tool's own are nearest.
  let place = dir;
  for (const packages of [...order.packages].reverse()) {
    place = path.join(place, 'within');
    fs.mkdirSync(place);
    fs.symlinkSync(path.join(packages, 'node_modules'), path.join(place, 'node_modules'));
  }
  const file = path.join(place, 'tool.mjs');
  fs.writeFileSync(file, `${order.source}\nexport { ${order.name} as __brig_tool };\n`);
  globalThis.require = createRequire(file);
  try {
    return (await import(pathToFileURL(file))).__brig_tool;
  } finally {
    fs.rmSync(dir, { recursive: true, force: true });
  }
}

async function run(order) {
  const report = { name: order.name };
  try {
    const f = await load(order);
    if (typeof f !== 'function') throw new TypeError(`${order.name} is not a function`);
    let value = await f(...order.parameters.map((p) => order.arguments[p]));
    if (value === undefined) value = null;
    const text = stringify(value);
    report.value = text === undefined ? String(value) : parse(text);
    report.text = typeof report.value === 'string' ? '' : stringify(report.value);
  } catch (err) {
    report.failure = failure(err);
  }
  return report;
}

const order = receive();
const key = Buffer.from(order.key, 'hex');
delete order.key;
process.on('uncaughtException', (err) => deliver(key, { name: order.name, failure: failure(err) }));
deliver(key, await run(order));
