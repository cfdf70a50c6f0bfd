package kernels

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

// The number of a tenant's connections is limited. The limit does not affect
// other tenants.
func TestConnectionsAreLimitedPerTenant(t *testing.T) {
	c := connections{byTenant: map[string]int{}, tenants: map[string]*tenantUsage{}}
	var leaves []func()
	for i := range maxConnections {
		_, release, err := c.acquire("acme", fmt.Sprint(i%3))
		if err != nil {
			t.Fatal(i, err)
		}
		leaves = append(leaves, release)
	}
	if _, _, err := c.acquire("acme", "x"); brig.KindOf(err) != brig.RateLimited || c.count("x") != 0 {
		t.Errorf("one more: %v, %d", err, c.count("x"))
	}
	_, release, err := c.acquire("rival", "x")
	if err != nil {
		t.Errorf("another tenant's: %v", err)
	}
	for _, release := range append(leaves, release) {
		release()
	}
	if len(c.byTenant)+len(c.tenants) != 0 {
		t.Errorf("something is left: %v %v", c.byTenant, c.tenants)
	}
}

// The number of bytes that a tenant's connections reserve is limited, for both complete and
// incomplete messages. A connection frees its remaining bytes when it ends.
func TestMessageBytesAreLimitedPerTenant(t *testing.T) {
	c := connections{byTenant: map[string]int{}, tenants: map[string]*tenantUsage{}}
	acquire := func(tenant string) (*share, func()) {
		s, release, err := c.acquire(tenant, "one")
		if err != nil {
			t.Fatal(err)
		}
		return s, release
	}
	read := func(s *share, n int) error {
		_, err := io.Copy(io.Discard, countingReader{bytes.NewReader(make([]byte, n)), s})
		return err
	}
	one, release := acquire("acme")
	two, _ := acquire("acme")
	other, _ := acquire("rival")
	if err := read(one, maxReserved-10); err != nil {
		t.Fatal(err)
	}
	if err := read(two, 11); brig.KindOf(err) != brig.RateLimited {
		t.Errorf("beyond the bound: %v", err)
	}
	if err := read(other, maxReserved); err != nil {
		t.Errorf("another tenant's: %v", err)
	}
	one.free(5)
	if err := read(two, 15); err != nil {
		t.Errorf("what was given back: %v", err)
	}
	release()
	if err := read(two, maxReserved-15); err != nil {
		t.Errorf("what a connection had that ended: %v", err)
	}
}

// A queued message keeps only the parts that execution needs.
func TestQueuedMessagesDropUnneededParts(t *testing.T) {
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
