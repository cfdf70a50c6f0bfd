package main

import (
	"reflect"
	"testing"

	"github.com/brig-run/brig"
)

func TestParseRuleReadsDestinations(t *testing.T) {
	for in, want := range map[string]brig.EgressRule{
		"api.test":               {Host: "api.test"},
		"API.test:443":           {Host: "api.test", Ports: []int{443}},
		"*.a.test:80,8080":       {Host: "*.a.test", Ports: []int{80, 8080}},
		"10.0.0.0/8":             {CIDR: "10.0.0.0/8"},
		"10.0.0.0/8:22":          {CIDR: "10.0.0.0/8", Ports: []int{22}},
		"192.0.2.1":              {CIDR: "192.0.2.1"},
		"2001:db8::/32":          {CIDR: "2001:db8::/32"},
		"GET,HEAD api.test/v1/*": {Host: "api.test", Methods: []string{"GET", "HEAD"}, Paths: []string{"/v1/*"}},
		"GET api.test:8443/v1":   {Host: "api.test", Methods: []string{"GET"}, Ports: []int{8443}, Paths: []string{"/v1"}},
		"api.test/a":             {Host: "api.test", Paths: []string{"/a"}},
	} {
		got, err := parseRule(in)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %+v, %v", in, got, err)
		}
	}
	if _, err := parseRule("a.test:https"); err == nil {
		t.Error("an invalid port was accepted")
	}
}
