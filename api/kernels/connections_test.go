package kernels

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

// A tenant has so many connections and no more, and leaves room for others'.
func TestConnectionsAreBounded(t *testing.T) {
	c := connections{by: map[string]int{}, tenants: map[string]*traffic{}}
	var leaves []func()
	for i := range maxConnections {
		_, leave, err := c.enter("acme", fmt.Sprint(i%3))
		if err != nil {
			t.Fatal(i, err)
		}
		leaves = append(leaves, leave)
	}
	if _, _, err := c.enter("acme", "x"); brig.KindOf(err) != brig.RateLimited || c.count("x") != 0 {
		t.Errorf("one more: %v, %d", err, c.count("x"))
	}
	_, leave, err := c.enter("rival", "x")
	if err != nil {
		t.Errorf("another tenant's: %v", err)
	}
	for _, leave := range append(leaves, leave) {
		leave()
	}
	if len(c.by)+len(c.tenants) != 0 {
		t.Errorf("something is left: %v %v", c.by, c.tenants)
	}
}

// A tenant's connections hold so many bytes, whole messages or not, and give
// them back with what they kept when they end.
func TestMessagesAreCounted(t *testing.T) {
	c := connections{by: map[string]int{}, tenants: map[string]*traffic{}}
	enter := func(tenant string) (*share, func()) {
		s, leave, err := c.enter(tenant, "one")
		if err != nil {
			t.Fatal(err)
		}
		return s, leave
	}
	read := func(s *share, n int) error {
		_, err := io.Copy(io.Discard, counting{bytes.NewReader(make([]byte, n)), s})
		return err
	}
	one, leave := enter("acme")
	two, _ := enter("acme")
	other, _ := enter("rival")
	if err := read(one, maxHeld-10); err != nil {
		t.Fatal(err)
	}
	if err := read(two, 11); brig.KindOf(err) != brig.RateLimited {
		t.Errorf("beyond the bound: %v", err)
	}
	if err := read(other, maxHeld); err != nil {
		t.Errorf("another tenant's: %v", err)
	}
	one.free(5)
	if err := read(two, 15); err != nil {
		t.Errorf("what was given back: %v", err)
	}
	leave()
	if err := read(two, maxHeld-15); err != nil {
		t.Errorf("what a connection had that ended: %v", err)
	}
}

// What nobody needs of a message is not kept.
func TestLittleIsKept(t *testing.T) {
	much := strings.Repeat("x", 1<<20)
	r, err := parse([]byte(`{"header":{"msg_id":"m","msg_type":"execute_request"},"metadata":{"m":"` + much + `"},` +
		`"content":{"code":"1","user_expressions":{"a":"` + much + `"},"rest":"` + much + `"}}`))
	if err != nil || r.size() > 100 {
		t.Errorf("%+v, %v", r, err)
	}
	many := make([]string, maxExpressions+1)
	for i := range many {
		many[i] = fmt.Sprintf(`"e%d":""`, i)
	}
	if _, err := parse([]byte(`{"header":{"msg_id":"m","msg_type":"execute_request"},"content":{"code":"1","user_expressions":{` + strings.Join(many, ",") + `}}}`)); brig.KindOf(err) != brig.InvalidArgument {
		t.Errorf("%d expressions: %v", len(many), err)
	}
}
