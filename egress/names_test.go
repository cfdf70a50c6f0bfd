package egress

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/brig-run/brig"
)

// A sandbox may look up any number of names: the table does not exceed its
// limit, recently used names keep their addresses, and an address identifies
// one name.
func TestLeastRecentlyUsedNamesAreFreed(t *testing.T) {
	n := newNames()
	kept := n.assignAddress("kept.test")
	lent := map[netip.Addr]int{}
	for i := range 1<<17 + 20_000 {
		name := fmt.Sprintf("n%d.test", i)
		a := n.assignAddress(name)
		if !brig.UplinkNetwork.Contains(a) || a == brig.UplinkGateway || a == brig.UplinkNetwork.Addr() || a == kept {
			t.Fatalf("%s is at %v", name, a)
		}
		if before, ok := lent[a]; ok && i-before < 100_000 {
			t.Fatalf("%v stood for n%d.test and stands for %s", a, before, name)
		}
		lent[a] = i
		if got, ok := n.lookupName(a); !ok || got != name {
			t.Fatalf("%v stands for %q", a, got)
		}
		if got, ok := n.lookupName(kept); !ok || got != "kept.test" { // connections use it
			t.Fatalf("after %d names %v stands for %q", i, kept, got)
		}
		if len(n.byName) > maxNames || len(n.byAddr) > maxNames || n.used.Len() > maxNames {
			t.Fatalf("%d, %d, %d names are kept", len(n.byName), len(n.byAddr), n.used.Len())
		}
	}
	if reassigned := n.assignAddress("n0.test"); reassigned == kept {
		t.Errorf("a name that was forgotten is at %v", reassigned)
	}
}

// The same holds in a session: a sandbox that has looked up more names than
// there are addresses can still resolve names.
func TestNamesResolveAfterAddressesAreUsedUp(t *testing.T) {
	l := newWorld(t, allowHosts("*.many.test"))
	for i := range 1<<16 + 10 {
		if out := l.names.assignAddress(fmt.Sprintf("n%d.many.test", i)); !out.IsValid() {
			t.Fatal(i)
		}
	}
	if _, ok := l.address("one.more.many.test"); !ok {
		t.Error("after 65,546 names nothing resolves")
	}
}
