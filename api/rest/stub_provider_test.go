package rest_test

import (
	"context"
	"encoding/json"
	"time"

	"github.com/brig-run/brig"
)

func (s *stub) provider(id string) brig.ProviderInfo {
	least := 5.0
	return brig.ProviderInfo{
		ID: id, Driver: brig.ProviderDriver(id), Title: "A cloud", Doc: "Sandboxes elsewhere.", Tags: []string{"saas"}, Languages: []brig.Language{brig.Python},
		Fields:     []brig.ConfigField{{Name: "timeout", Type: "integer", Label: "Timeout", Default: 30.0, Min: &least}, {Name: "api_key", Type: "string", Label: "Key", Required: true, Secret: true}},
		Configured: true, Active: true, Config: json.RawMessage(`{"api_key":"****abcd","timeout":30}`),
		Terms: brig.Terms{Region: "eu", Max: 3, Second: 0.02}, Up: false, Why: "it does not answer", Users: 2,
		Capabilities: brig.Capabilities{Name: id, Isolation: "theirs", RunsOnly: true, Enforces: map[brig.Area]brig.Enforcement{}},
	}
}

func (s *stub) Providers(context.Context) ([]brig.ProviderInfo, error) {
	return []brig.ProviderInfo{s.provider("e2b@eu")}, nil
}

func (s *stub) ConfigureProvider(_ context.Context, c brig.ProviderConfig) (*brig.ProviderInfo, error) {
	s.record(c)
	if c.ID == "wrong" {
		err := brig.Errorf(brig.InvalidConfig, "Field 'timeout' must be >= 5").WithHint("see brig provider describe")
		err.Field, err.Fields = "timeout", []brig.FieldError{{Field: "timeout", Message: "Field 'timeout' must be >= 5"}, {Field: "api_key", Message: "Required field 'api_key' is missing"}}
		return nil, err
	}
	p := s.provider(c.ID)
	return &p, nil
}

func (s *stub) TestProvider(_ context.Context, c brig.ProviderConfig) (*brig.ProviderTest, error) {
	s.record(c)
	return &brig.ProviderTest{OK: true, Message: "Test PASSED", Latency: 1500 * time.Microsecond, Stdout: brig.TestPassed + "\n"}, nil
}

func (s *stub) ActivateProvider(_ context.Context, id string) error {
	if id != "e2b" {
		return brig.Errorf(brig.InvalidConfig, "Provider not configured")
	}
	return nil
}

func (s *stub) RemoveProvider(_ context.Context, id string) error {
	s.record(id)
	return nil
}

func (s *stub) Routing(_ context.Context, tenant string) (*brig.Routing, error) {
	s.record(tenant)
	return &brig.Routing{Order: []string{"gvisor", "e2b"}, Split: map[string]int{"e2b": 1}, Overflow: []string{"e2b"}, Prefer: brig.PreferRegion, Regions: []string{"eu"}, Attempts: 2}, nil
}

func (s *stub) SetRouting(_ context.Context, tenant string, r brig.Routing) error {
	s.record(r)
	return r.Check("routing")
}
