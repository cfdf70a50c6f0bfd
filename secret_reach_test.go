package brig_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

func TestSecretWidens(t *testing.T) {
	type secret = brig.Secret
	bound := func(hosts ...string) secret { return secret{Hosts: hosts} }
	only := func(allow ...string) secret {
		return secret{Hosts: []string{"a.test"}, Exclusive: true, Allow: allow}
	}
	header, query := brig.SecretHeader, brig.SecretQuery
	for what, c := range map[string]struct {
		was, now secret
		fields   string
		added    string
	}{
		"another host":            {bound("a.test"), bound("b.test"), "hosts", "b.test"},
		"a further host":          {bound("a.test"), bound("a.test", "b.test"), "hosts", "b.test"},
		"a wildcard":              {bound("x.a.test"), bound("*.a.test"), "hosts", "*.a.test"},
		"a wider wildcard":        {bound("*.x.a.test"), bound("*.a.test"), "hosts", "*.a.test"},
		"the host of a wildcard":  {bound("*.a.test"), bound("a.test"), "hosts", "a.test"},
		"a host with this end":    {bound("*.a.test"), bound("x-a.test"), "hosts", "x-a.test"},
		"no hosts":                {bound("a.test"), bound(), "hosts", ""},
		"no hosts, plain":         {bound("a.test"), secret{Plain: true}, "hosts", ""},
		"a place":                 {bound("a.test"), secret{Hosts: []string{"a.test"}, Places: []brig.SecretPlace{header, query}}, "places", "query"},
		"another place":           {secret{Hosts: []string{"a.test"}, Places: []brig.SecretPlace{query}}, bound("a.test"), "places", "header"},
		"not exclusive":           {only(), bound("a.test"), "exclusive", ""},
		"a name":                  {only("X-A"), only("X-A", "X-B"), "allow", "X-B"},
		"a prefix":                {only("X-A*"), only("X-*"), "allow", "X-*"},
		"a parameter for a field": {only("a"), only("?a"), "allow", "?a"},
		"a user for fields":       {only("u*"), only("u*", "user:me"), "allow", "user:me"},
		"plain":                   {bound("a.test"), secret{Hosts: []string{"a.test"}, Plain: true}, "plain", ""},
		"two":                     {bound("a.test"), secret{Hosts: []string{"b.test"}, Plain: true}, "hosts,plain", "b.test"},
		// The controls: these changes do not allow the value to reach more
		// destinations.
		"the same":                 {bound("a.test", "*.b.test"), bound("*.b.test", "a.test"), "", ""},
		"fewer hosts":              {bound("a.test", "b.test"), bound("b.test"), "", ""},
		"a host below":             {bound("*.a.test"), bound("x.a.test", "*.y.a.test"), "", ""},
		"hosts for a visible one":  {bound(), secret{Hosts: []string{"b.test"}, Plain: true}, "", ""},
		"visible as before":        {bound(), bound(), "", ""},
		"a place less":             {secret{Hosts: []string{"a.test"}, Places: []brig.SecretPlace{header, query}}, bound("a.test"), "", ""},
		"exclusive":                {bound("a.test"), only("X-A"), "", ""},
		"a name in other capitals": {only("X-A*"), only("x-a", "X-AB*"), "", ""},
		"a name, not exclusive":    {bound("a.test"), secret{Hosts: []string{"a.test"}, Allow: []string{"X-A"}}, "", ""},
		"not plain":                {secret{Hosts: []string{"a.test"}, Plain: true}, bound("a.test"), "", ""},
	} {
		fields, added := c.now.Widens(c.was)
		if got := strings.Join(fields, ","); got != c.fields || added != c.added {
			t.Errorf("%s: %q, %q, want %q, %q", what, got, added, c.fields, c.added)
		}
	}
}

// TestSecretWithin checks for all pairs of secrets that a secret restricted by another one reaches only
// destinations that both allow. If the other one is wider, the restriction changes nothing.
func TestSecretWithin(t *testing.T) {
	var all []brig.Secret
	for _, hosts := range [][]string{nil, {"a.test"}, {"b.test"}, {"*.a.test"}, {"x.a.test", "b.test"}, {"*.test"}} {
		all = append(all, brig.Secret{Hosts: hosts})
		if hosts == nil {
			continue
		}
		for _, places := range [][]brig.SecretPlace{{brig.SecretQuery}, {brig.SecretHeader, brig.SecretBody}} {
			all = append(all, brig.Secret{Hosts: hosts, Places: places, Plain: true})
		}
		for _, allow := range [][]string{nil, {"X-A"}, {"X-*", "?a"}} {
			all = append(all, brig.Secret{Hosts: hosts, Exclusive: true, Allow: allow})
		}
	}
	kept := 0
	for _, now := range all {
		for _, given := range all {
			got, see := now.Within(given)
			if see != (len(now.Hosts)+len(given.Hosts) == 0) {
				t.Fatalf("%+v within %+v: the sandbox sees it: %t", now, given, see)
			}
			if !see && len(got.Hosts) == 0 {
				continue // no host may receive the value
			}
			kept++
			for _, limit := range []brig.Secret{now, given} {
				if fields, added := got.Widens(limit); len(fields) > 0 {
					t.Fatalf("%+v within %+v is %+v: %v %q go further", now, given, got, fields, added)
				}
			}
			if fields, _ := now.Widens(given); len(fields) == 0 && len(given.Hosts) > 0 {
				if back, _ := now.Widens(got); len(back) > 0 || len(got.Hosts) == 0 {
					t.Fatalf("%+v within the wider %+v is %+v", now, given, got)
				}
			}
		}
	}
	if kept < len(all) {
		t.Errorf("only %d of %d pairs have something in common", kept, len(all)*len(all))
	}
	wide := brig.Secret{Hosts: []string{"*.a.test", "b.test"}}
	both, _ := wide.Within(brig.Secret{Hosts: []string{"x.a.test", "c.test"}})
	if !slices.Equal(both.Hosts, []string{"x.a.test"}) {
		t.Errorf("common hosts are %q", both.Hosts)
	}
}
