package rest_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/brig-run/brig"
)

// TestClientCallsProviderRoutes checks that the client returns providers with all of
// their fields.
func TestClientCallsProviderRoutes(t *testing.T) {
	s, c := pair(t)
	ctx := t.Context()
	same := func(what string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", what, got, want)
		}
	}
	list, err := c.Providers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	same("providers", list, []brig.ProviderInfo{s.provider("e2b@eu")})

	in := brig.ProviderConfig{ID: "e2b@eu", Config: json.RawMessage(`{"timeout":7}`), Terms: &brig.Terms{Max: 2}, Activate: true, Test: true}
	p, err := c.ConfigureProvider(ctx, in)
	if err != nil {
		t.Fatal(err)
	}
	same("configuration", s.lastArguments(), in)
	same("configured", *p, s.provider("e2b@eu"))

	_, err = c.ConfigureProvider(ctx, brig.ProviderConfig{ID: "wrong"})
	apiErr, _ := errors.AsType[*brig.Error](err)
	if apiErr == nil || apiErr.Kind != brig.InvalidConfig || apiErr.Field != "timeout" || len(apiErr.Fields) != 2 || apiErr.Fields[1].Field != "api_key" {
		t.Errorf("a wrong configuration: %+v", apiErr)
	}
	test, err := c.TestProvider(ctx, brig.ProviderConfig{ID: "e2b"})
	if err != nil {
		t.Fatal(err)
	}
	want, _ := s.TestProvider(ctx, brig.ProviderConfig{ID: "e2b"})
	same("test", test, want)
	if err := c.ActivateProvider(ctx, "e2b"); err != nil {
		t.Error(err)
	}
	if err := c.ActivateProvider(ctx, "other"); brig.KindOf(err) != brig.InvalidConfig {
		t.Errorf("activate what is not there: %v", err)
	}
	if err := c.RemoveProvider(ctx, "e2b@eu"); err != nil || s.lastArguments() != "e2b@eu" {
		t.Errorf("remove: %v, %v", err, s.lastArguments())
	}
	r, err := c.Routing(ctx, "a b")
	if err != nil || s.lastArguments() != "a b" {
		t.Errorf("routing: %v of %v", err, s.lastArguments())
	}
	if err := c.SetRouting(ctx, "", *r); err != nil {
		t.Error(err)
	}
	same("routing", s.lastArguments(), *r)
}
