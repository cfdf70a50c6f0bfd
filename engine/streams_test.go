package engine

import (
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

// The limits for a sandbox, a key or person, and a tenant apply independently, and streams are
// counted exactly. A key may use at most half of a sandbox's streams. Connections to ports have a
// separate limit.
func TestStreamLimitsApplyIndependently(t *testing.T) {
	s := newStreams(StreamLimits{Sandbox: 4, Connections: 5, Key: 5, Tenant: 9})
	call := func(op brig.Op, tenant, key, box string) *call {
		return &call{callAudit: callAudit{op: op, actor: brig.Actor{Tenant: tenant, Key: key}}, rec: &brig.Record{Sandbox: brig.Sandbox{ID: brig.ID(box), Tenant: tenant}}}
	}
	var leave []func()
	open := func(what string, want brig.Kind, op brig.Op, tenant, key, box string) {
		t.Helper()
		end, err := s.reserve(call(op, tenant, key, box))
		if brig.KindOf(err) != want {
			t.Errorf("%s: %v", what, err)
		}
		if err == nil {
			leave = append(leave, end)
		} else if brig.AsError(err).RetryAfter == 0 {
			t.Errorf("%s: no time to wait", what)
		}
	}
	for range 2 {
		open("a process", "", brig.OpAttach, "acme", "k1", "one")
	}
	open("more than half of the sandbox's", brig.RateLimited, brig.OpWatch, "acme", "k1", "one")
	for _, op := range []brig.Op{brig.OpLogs, brig.OpRead} {
		open("another key's stream", "", op, "acme", "k2", "one")
	}
	for _, op := range []brig.Op{brig.OpWatch, brig.OpAttach, brig.OpRead} {
		open("one too many of the sandbox", brig.RateLimited, op, "acme", "k3", "one")
	}
	for range 3 {
		open("a connection", "", brig.OpDial, "acme", "k1", "one")
	}
	open("one too many of the key", brig.RateLimited, brig.OpDial, "acme", "k1", "one")
	for range 2 {
		open("another key's connection", "", brig.OpDial, "acme", "k2", "one")
	}
	open("one connection too many", brig.RateLimited, brig.OpDial, "acme", "k2", "one")
	open("one too many of the tenant", brig.RateLimited, brig.OpAttach, "acme", "k3", "two")
	open("another tenant", "", brig.OpAttach, "beta", "k9", "three")
	// Open watches of a key prevent neither its other streams nor the streams of other keys.
	for _, box := range []string{"four", "five", "six"} {
		for i := range 2 {
			want := brig.Kind("")
			if box == "six" && i > 0 {
				want = brig.RateLimited
			}
			open("a watch", want, brig.OpWatch, "gamma", "k1", box)
		}
	}
	open("one watch too many of the key", brig.RateLimited, brig.OpWatch, "gamma", "k1", "seven")
	for range 4 {
		open("another key's watch", "", brig.OpWatch, "gamma", "k2", "seven"+strings.Repeat("n", len(leave)))
	}
	open("one watch too many of the tenant", brig.RateLimited, brig.OpWatch, "gamma", "k3", "eight")
	for _, op := range []brig.Op{brig.OpRead, brig.OpLogs, brig.OpDial} {
		open("another stream", "", op, "gamma", "k1", "eight"+op.Name)
	}
	for _, end := range leave {
		end()
		end()
	}
	if len(s.byOwner) != 0 {
		t.Errorf("in the end: %v", s.byOwner)
	}
}

// All sessions of a person share one limit, which is the limit of a key. Another person with the
// same display name is not affected.
func TestPersonHasOneStreamLimit(t *testing.T) {
	s := newStreams(StreamLimits{Sandbox: 100, Key: 3, Tenant: 100})
	open := func(issuer, subject, session string) error {
		a := brig.Actor{Name: "ann", Tenant: "acme", Session: session, Person: &brig.Person{Issuer: issuer, Subject: subject}}
		_, err := s.reserve(&call{callAudit: callAudit{op: brig.OpWatch, actor: a}, rec: &brig.Record{Sandbox: brig.Sandbox{ID: "one", Tenant: "acme"}}})
		return err
	}
	for _, session := range []string{"", "s1", "s2"} {
		if err := open("https://login", "42", session); err != nil {
			t.Errorf("session %q: %v", session, err)
		}
	}
	if err := open("https://login", "42", "s3"); brig.KindOf(err) != brig.RateLimited {
		t.Errorf("one too many of the person: %v", err)
	}
	for _, who := range [][2]string{{"https://login", "43"}, {"https://other", "42"}} {
		if err := open(who[0], who[1], ""); err != nil {
			t.Errorf("another person %v: %v", who, err)
		}
	}
}
