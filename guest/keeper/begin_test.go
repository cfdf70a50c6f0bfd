package keeper

import (
	"os"
	"testing"
	"time"

	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/provider/providertest"
)

// Whoever has been told of a machine may begin its main program at once, before
// the keeper has heard that they know of it.
func TestBegunWhenTold(t *testing.T) {
	k, dial := serving(t)
	program, err := os.Open(providertest.Agent(t))
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	k.program, k.plain = program, !privileged()
	maker := dial()
	defer maker.Close()
	main := &wire.Exec{ID: "main", Argv: []string{"/bin/sh", "-c", "exit 3"}}
	order := wire.Order{
		Version: wire.KeeperVersion, Op: wire.KeeperMake, ID: "told",
		Make: &wire.Make{Hostname: "told", LeaseMS: time.Minute.Milliseconds(), Main: main, Held: true},
	}
	if err := wire.WriteJSON(maker, wire.TypeOrder, order); err != nil {
		t.Fatal(err)
	}
	if f, err := wire.NewReader(maker).Read(); err != nil || f.Type != wire.TypeState {
		t.Fatalf("make: %v, %d %s", err, f.Type, f.Payload)
	}
	if f := ask(t, dial(), wire.Order{Op: wire.KeeperBegin, ID: "told", Linger: true}); f.Type != wire.TypeOK {
		t.Fatalf("begin: %d %s", f.Type, f.Payload)
	}
	over := dial()
	if err := over.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if f := ask(t, over, wire.Order{Op: wire.KeeperOver, ID: "told"}); f.Type != wire.TypeOK {
		t.Errorf("over: %d %s", f.Type, f.Payload)
	}
	if f := ask(t, dial(), wire.Order{Op: wire.KeeperErase, ID: "told"}); f.Type != wire.TypeOK {
		t.Errorf("erase: %d %s", f.Type, f.Payload)
	}
}
