package e2b

import (
	"reflect"
	"slices"
	"testing"

	"github.com/brig-run/brig"
)

// A client that reads a sandbox's network rules and sends them back unchanged does not change
// any rule. If denyOut did not deny all other addresses, the same request would give a closed
// sandbox access to the Internet.
func TestNetworkRoundTrip(t *testing.T) {
	everything := []string{"0.0.0.0/0"}
	for name, c := range map[string]struct {
		asked       network
		internet    bool
		allow, deny []string // expected response
		open        bool     // allowInternetAccess
	}{
		"some, and nothing else":         {network{AllowOut: []string{"1.1.1.1"}, DenyOut: everything}, true, []string{"1.1.1.1"}, everything, false},
		"nothing":                        {network{DenyOut: everything}, true, nil, everything, false},
		"everything but one":             {network{DenyOut: []string{"8.8.8.8"}}, true, nil, []string{"8.8.8.8"}, true},
		"everything":                     {network{}, true, nil, nil, true},
		"one of the denied addresses":    {network{AllowOut: []string{"a.test"}, DenyOut: []string{"10.0.0.0/8"}}, true, []string{"a.test"}, []string{"10.0.0.0/8"}, true},
		"without an internet":            {network{AllowOut: []string{"a.test", "1.1.1.1"}}, false, []string{"a.test", "1.1.1.1"}, everything, false},
		"without an internet, as in E2B": {network{AllowOut: []string{"a.test"}, DenyOut: everything}, false, []string{"a.test"}, everything, false},
		"every address":                  {network{AllowOut: everything, DenyOut: everything}, false, everything, everything, true},
	} {
		t.Run(name, func(t *testing.T) {
			first, err := c.asked.egress(c.internet)
			if err != nil {
				t.Fatal(err)
			}
			box := &brig.Sandbox{Spec: brig.Spec{Egress: first}}
			rules := networkOf(box, c.internet)
			if !slices.Equal(rules.AllowOut, c.allow) || !slices.Equal(rules.DenyOut, c.deny) {
				t.Fatalf("got allowOut %q and denyOut %q, want %q and %q", rules.AllowOut, rules.DenyOut, c.allow, c.deny)
			}
			if open := hasInternet(first); open != c.open {
				t.Errorf("allowInternetAccess is %v, want %v", open, c.open)
			}
			second, err := rules.egress(c.internet)
			if err != nil || !reflect.DeepEqual(first, second) {
				t.Errorf("sent back, they are %+v, %v, and were %+v", second, err, first)
			}
		})
	}
}
