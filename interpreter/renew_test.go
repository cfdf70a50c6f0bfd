package interpreter_test

import (
	"strings"
	"testing"

	"github.com/brig-run/brig/interpreter"
)

// TestRenewReseedsRandomGenerator verifies that the request "renew" reseeds the random generator of
// the driver's process and keeps the variables. As a control, the same seed without the request
// gives the same numbers.
func TestRenewReseedsRandomGenerator(t *testing.T) {
	for _, c := range []struct {
		name, seed, next string
		start            func(t *testing.T) *driver
	}{
		{"python", "import random; x = 41; random.seed(1)", "print(x + 1, random.getrandbits(60))", func(t *testing.T) *driver { return startPython(t) }},
		{"bash", "x=42; RANDOM=1", "echo $x $RANDOM-$RANDOM-$RANDOM-$RANDOM", func(t *testing.T) *driver { return startBash(t, buildAgent(t)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := c.start(t)
			var values []string
			for _, renew := range []bool{false, false, true, true} {
				d.runCell(c.seed)
				if renew {
					d.send(interpreter.Request{Op: "renew"})
				}
				_, stdout, stderr := d.runCell(c.next)
				if !strings.HasPrefix(stdout, "42 ") {
					t.Fatalf("stdout %q, stderr %q", stdout, stderr)
				}
				values = append(values, stdout)
			}
			if values[0] != values[1] {
				t.Errorf("control: the same seed gives %q and %q", values[0], values[1])
			}
			if values[2] == values[0] || values[3] == values[0] || values[2] == values[3] {
				t.Errorf("the seed gives %q, and after a request to renew %q and %q", values[0], values[2], values[3])
			}
		})
	}
}

// TestRenewedNodeGeneratorsMatchOriginals verifies that the replaced generators of Node.js have the
// same interface as the originals, and reject the same arguments.
func TestRenewedNodeGeneratorsMatchOriginals(t *testing.T) {
	d := startNode(t)
	const code = `
const nc = require('crypto'), out = [];
const say = (...all) => out.push(...all);
const code = (f) => { try { f(); return 'no error'; } catch (err) { return err.code || err.name; } };
say(nc.randomBytes(9).length, nc.randomBytes(20000).length, nc.randomFillSync(Buffer.alloc(8), 2, 3).subarray(5).join(''));
say(nc.randomFillSync(new Uint32Array(4), 1, 2)[3], [5, 6].includes(nc.randomInt(5, 7)), nc.randomInt(1));
say(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(nc.randomUUID()), globalThis.crypto.randomUUID().length);
say(globalThis.crypto.getRandomValues(new Uint16Array(3)).length, Math.random() < 1, Math.random() !== Math.random());
say(code(() => nc.randomBytes(-1)), code(() => nc.randomInt('x')), code(() => nc.randomFill(Buffer.alloc(1))), code(() => globalThis.crypto.getRandomValues(new Float32Array(1))));
say(await new Promise((done) => nc.randomBytes(3, (err, b) => done(b.length))), await new Promise((done) => nc.randomFill(Buffer.alloc(4), 1, 2, (err, b) => done(b[0] + b[3]))), await new Promise((done) => nc.randomInt(1, (err, n) => done(n))));
console.log(out.join(' '))`
	const want = "9 20000 000 0 true 0 true 36 3 true true ERR_OUT_OF_RANGE ERR_INVALID_ARG_TYPE ERR_INVALID_ARG_TYPE TypeMismatchError 3 0 0\n"
	for range 3 {
		_, stdout, stderr := d.runCell("{" + code + "\n}")
		if got := strings.ReplaceAll(stdout, " 17 ", " TypeMismatchError "); got != want {
			t.Fatalf("stdout %q, stderr %q, want %q", stdout, stderr, want)
		}
		d.send(interpreter.Request{Op: "renew"})
	}
}
