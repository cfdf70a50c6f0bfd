package chaos

import (
	"errors"

	"github.com/brig-run/brig"
)

var errForTest = errors.New("an error")

func opForTest(name string) brig.Op { return brig.Op{Name: name, Changes: true} }

func eventsForTest(ops ...string) (out []brig.Event) {
	for _, op := range ops {
		out = append(out, brig.Event{Op: op, Sandbox: "box", Phase: brig.Finish})
	}
	return out
}
