package main

import (
	"testing"

	"github.com/brig-run/brig"
)

// TestExecmanEgressRejectsInvalidHosts checks that execman.egress accepts hosts, and that an
// invalid host is rejected rather than ignored.
func TestExecmanEgressRejectsInvalidHosts(t *testing.T) {
	o, err := (&execmanConfig{Egress: []string{"pypi.org", "*.example.com"}}).options()
	if err != nil || len(o.Egress.Rules) != 2 || o.Egress.Rules[0].Host != "pypi.org" || o.Egress.Rules[1].Host != "*.example.com" {
		t.Errorf("%+v, %v", o.Egress, err)
	}
	if o, err := (&execmanConfig{}).options(); err != nil || len(o.Egress.Rules) != 0 {
		t.Errorf("without the setting: %+v, %v", o.Egress, err)
	}
	for _, host := range []string{"https://pypi.org/", "a b", ""} {
		if _, err := (&execmanConfig{Egress: []string{host}}).options(); brig.KindOf(err) != brig.InvalidConfig {
			t.Errorf("%q: %v", host, err)
		}
	}
}
