package admin_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/admin"
	"github.com/brig-run/brig/api/httpapi/transcript"
)

var _ = flag.Bool("update", false, "rewrite the transcripts in testdata")

// The keys of these tests belong to an operator and to a member.
const (
	operatorKey = "brig_0123456789abcdefghijklmnopqrstuvwxyzABCDEF"
	memberKey   = "brig_memberabcdefghijklmnopqrstuvwxyzABCDEF0123"
)

type keys struct{}

func (keys) KeyActor(_ context.Context, hash [32]byte) (brig.Actor, error) {
	switch hash {
	case sha256.Sum256([]byte(operatorKey)):
		return brig.Actor{Name: "ann", Tenant: "acme", Role: brig.Operator}, nil
	case sha256.Sum256([]byte(memberKey)):
		return brig.Actor{Name: "bob", Tenant: "acme", Role: brig.Member}, nil
	}
	return brig.Actor{}, brig.Errorf(brig.Unauthenticated, "no such key")
}

// stub is a scripted Service with one configured provider and one that is not
// configured.
type stub struct{ brig.Service }

func (s stub) admit(ctx context.Context) error {
	if a := brig.ActorFrom(ctx); a.Role < brig.Operator {
		return brig.Errorf(brig.PermissionDenied, "provider.list needs the role operator, this key has %s", a.Role)
	}
	return nil
}

func (s stub) Providers(ctx context.Context) ([]brig.ProviderInfo, error) {
	least, maximum := 5.0, 300.0
	return []brig.ProviderInfo{
		{
			ID: "self_managed", Driver: "self_managed", Title: "Self-Managed", Doc: "An executor manager.", Tags: []string{"self-hosted"},
			Languages: []brig.Language{brig.Python}, Configured: true, Active: true, Up: true,
			Fields: []brig.ConfigField{
				{Name: "endpoint", Type: "string", Label: "Endpoint", Placeholder: "http://localhost:9385", Required: true},
				{Name: "timeout", Type: "integer", Label: "Timeout", Default: 30, Min: &least, Max: &maximum},
				{Name: "image", Type: "string", Label: "Image", Default: "a:1", ReadOnly: true},
			},
			Config: json.RawMessage(`{"endpoint":"http://localhost:9385"}`),
		},
		{
			ID: "e2b", Driver: "e2b", Title: "E2B", Doc: "A cloud.",
			Fields: []brig.ConfigField{{Name: "api_key", Type: "string", Label: "Key", Required: true, Secret: true}},
		},
	}, s.admit(ctx)
}

func (s stub) ConfigureProvider(ctx context.Context, c brig.ProviderConfig) (*brig.ProviderInfo, error) {
	list, err := s.Providers(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case c.ID == "mars":
		err := brig.Errorf(brig.InvalidConfig, "Unknown provider type: mars")
		err.Field = "provider_type"
		return nil, err
	case c.ID == "e2b":
		err := brig.Errorf(brig.InvalidConfig, "Required field 'api_key' is missing")
		err.Field, err.Fields = "api_key", []brig.FieldError{{Field: "api_key", Message: "Required field 'api_key' is missing"}, {Field: "region", Message: "Field 'region' must be one of: us, eu"}}
		return nil, err
	case c.Test:
		return nil, brig.Errorf(brig.ConnectionFailed, "Connection failed: no answer")
	case string(c.Config) == `{"boom":1}`:
		return nil, brig.Errorf(brig.Internal, "secret cause")
	}
	p := list[0]
	p.Active = c.Activate
	return &p, nil
}

func (s stub) TestProvider(ctx context.Context, c brig.ProviderConfig) (*brig.ProviderTest, error) {
	if err := s.admit(ctx); err != nil {
		return nil, err
	}
	if c.ID == "e2b" {
		return &brig.ProviderTest{Message: "the key is refused", Code: "SB003", Hint: "check api_key", Latency: 12 * time.Millisecond, ExitCode: -1}, nil
	}
	return &brig.ProviderTest{OK: true, Message: "Test PASSED | Exit code: 0 | Execution time: 0.01s", Latency: 25 * time.Millisecond, Stdout: "2 + 2 = 4\n" + brig.TestPassed + "\n"}, nil
}

func (s stub) ActivateProvider(ctx context.Context, id string) error {
	switch id {
	case "self_managed":
		return s.admit(ctx)
	case "e2b":
		return brig.Errorf(brig.InvalidConfig, "Provider not configured")
	}
	err := brig.Errorf(brig.InvalidConfig, "Unknown provider type: %s", id)
	err.Field = "provider_type"
	return err
}

// TestResponsesMatchTranscripts replays requests of administrators' clients.
func TestResponsesMatchTranscripts(t *testing.T) {
	transcript.Run(t, transcript.Options{
		Serve: func(t *testing.T) string {
			srv := httptest.NewServer(admin.New(admin.Options{Service: stub{}, Keys: keys{}}))
			t.Cleanup(srv.Close)
			return srv.URL
		},
		Do: func(t *testing.T, req *http.Request) (*http.Response, string) {
			if _, present := req.Header["Authorization"]; !present {
				req.Header.Set("Authorization", "Bearer "+operatorKey)
			}
			return transcript.Fetch(t, req)
		},
		Headers: []string{"Content-Type"},
	})
}
