package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/rest"
	"github.com/brig-run/brig/client"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/provider/fake"
	"github.com/brig-run/brig/store/sqlite"
)

// barrierService is a service that blocks the first two readers of an object
// until both have read it. If blind is set, it ignores the revision on which a
// change is based.
type barrierService struct {
	*engine.Engine
	blind bool

	mu          sync.Mutex // guards came
	arrivals    int
	bothArrived chan struct{}
}

func (m *barrierService) awaitBoth() {
	m.mu.Lock()
	if m.arrivals++; m.arrivals == 2 {
		close(m.bothArrived)
	}
	m.mu.Unlock()
	<-m.bothArrived
}

func (m *barrierService) GetTenant(ctx context.Context, name string) (*brig.Tenant, error) {
	t, err := m.Engine.GetTenant(ctx, name)
	m.awaitBoth()
	return t, err
}

func (m *barrierService) UpdateTenant(ctx context.Context, t brig.Tenant) (*brig.Tenant, error) {
	if m.blind {
		t.Rev = 0
	}
	return m.Engine.UpdateTenant(ctx, t)
}

func (m *barrierService) Routing(ctx context.Context, tenant string) (*brig.Routing, error) {
	r, err := m.Engine.Routing(ctx, tenant)
	m.awaitBoth()
	return r, err
}

func (m *barrierService) SetRouting(ctx context.Context, tenant string, r brig.Routing) error {
	if m.blind {
		r.Rev = 0
	}
	return m.Engine.SetRouting(ctx, tenant, r)
}

func (m *barrierService) Providers(ctx context.Context) ([]brig.ProviderInfo, error) {
	list, err := m.Engine.Providers(ctx)
	m.awaitBoth()
	return list, err
}

func (m *barrierService) ConfigureProvider(ctx context.Context, c brig.ProviderConfig) (*brig.ProviderInfo, error) {
	if m.blind {
		c.Rev = 0
	}
	return m.Engine.ConfigureProvider(ctx, c)
}

// TestConcurrentChanges verifies that two administrators who read an object at the same time and
// change different parts of it both succeed, even if the object has never been changed before. It
// covers partial bodies over REST and the brig command. The control is a server that ignores the
// revision on which a change is based, and therefore loses one of the changes.
//
//suite:part hostile
func TestConcurrentChanges(t *testing.T) {
	type parts struct{ one, other bool }
	body := func(path string, bodies [2]string) func(s *server, i int) error {
		return func(s *server, i int) error {
			if status, text := s.do("PUT", path, bodies[i]); status != 200 {
				return fmt.Errorf("%d %s", status, text)
			}
			return nil
		}
	}
	commanded := func(ctx context.Context, change func(svc brig.Service, i int) error) func(s *server, i int) error {
		return func(s *server, i int) error {
			svc, err := client.New(client.Options{URL: s.url, Key: s.key})
			if err != nil {
				return err
			}
			return brig.Reapply(ctx, func() error { return change(svc, i) })
		}
	}
	ctx := t.Context()
	tenant := func(e *engine.Engine, ctx context.Context) parts {
		x, err := e.GetTenant(ctx, "acme")
		if err != nil {
			t.Fatal(err)
		}
		return parts{x.Budget == 7, x.Quota.Sandboxes == 3}
	}
	routing := func(e *engine.Engine, ctx context.Context) parts {
		x, err := e.Routing(ctx, "acme")
		if err != nil {
			t.Fatal(err)
		}
		return parts{len(x.Order) == 1, x.Attempts == 2}
	}
	terms := func(e *engine.Engine, ctx context.Context) parts {
		list, err := e.Providers(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range list {
			if x.Home {
				return parts{x.Terms.Region == "eu", x.Terms.Max == 9}
			}
		}
		t.Fatal("there is no provider")
		return parts{}
	}
	for name, c := range map[string]struct {
		change func(s *server, i int) error
		now    func(*engine.Engine, context.Context) parts
	}{
		"a tenant":           {body("/v1/tenants/acme", [2]string{`{"budget":7}`, `{"quota":{"sandboxes":3}}`}), tenant},
		"a routing":          {body("/v1/routing?tenant=acme", [2]string{`{"order":["fake"]}`, `{"attempts":2}`}), routing},
		"a provider's terms": {body("/v1/providers/fake", [2]string{`{"terms":{"region":"eu"}}`, `{"terms":{"max":9}}`}), terms},
		"a tenant, commanded": {commanded(ctx, func(svc brig.Service, i int) error {
			x, err := svc.GetTenant(ctx, "acme")
			if err != nil {
				return err
			}
			if i == 0 {
				x.Budget = 7
			} else {
				x.Quota.Sandboxes = 3
			}
			_, err = svc.UpdateTenant(ctx, *x)
			return err
		}), tenant},
		"a routing, commanded": {commanded(ctx, func(svc brig.Service, i int) error {
			x, err := svc.Routing(ctx, "acme")
			if err != nil {
				return err
			}
			if i == 0 {
				x.Order = []string{"fake"}
			} else {
				x.Attempts = 2
			}
			return svc.SetRouting(ctx, "acme", *x)
		}), routing},
		"a provider's terms, commanded": {commanded(ctx, func(svc brig.Service, i int) error {
			list, err := svc.Providers(ctx)
			if err != nil {
				return err
			}
			for _, x := range list {
				if !x.Home {
					continue
				}
				if i == 0 {
					x.Terms.Region = "eu"
				} else {
					x.Terms.Max = 9
				}
				_, err = svc.ConfigureProvider(ctx, brig.ProviderConfig{ID: x.ID, Terms: &x.Terms, Rev: x.Rev})
			}
			return err
		}), terms},
	} {
		for _, blind := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, blind %v", name, blind), func(t *testing.T) {
				store, err := sqlite.Open(ctx, t.TempDir()+"/brig.db")
				if err != nil {
					t.Fatal(err)
				}
				defer store.Close()
				e := engine.New(ctx, engine.Options{Store: store, Provider: &fake.Provider{}, Images: hostImage{}, LimitRange: brig.DefaultLimitRange()})
				defer e.Close()
				for _, name := range []string{"acme", "ops"} {
					if err := store.PutTenant(ctx, &brig.Tenant{Name: name}); err != nil {
						t.Fatal(err)
					}
				}
				key := fmt.Sprintf(matrixKey, "operator")
				actor := brig.Actor{Name: "op", Tenant: "ops", Role: brig.Operator, Key: "k-op"}
				if err := store.PutKey(ctx, brig.Key{ID: actor.Key, Hash: sha256.Sum256([]byte(key)), Actor: actor}); err != nil {
					t.Fatal(err)
				}
				svc := &barrierService{Engine: e, blind: blind, bothArrived: make(chan struct{})}
				srv := httptest.NewServer(rest.New(rest.Options{Service: svc, Keys: e, LimitRange: brig.DefaultLimitRange(), Log: slog.New(slog.DiscardHandler)}))
				defer srv.Close()
				s := &server{t: t, url: srv.URL, key: key}
				done := make(chan error, 2)
				for i := range 2 {
					go func() { done <- c.change(s, i) }()
				}
				for range 2 {
					select {
					case err := <-done:
						if err != nil {
							t.Error(err)
						}
					case <-time.After(promptTimeout):
						t.Fatal("the changes do not end")
					}
				}
				if got := c.now(e, brig.WithActor(ctx, actor)); got != (parts{true, true}) != blind {
					t.Errorf("what was changed holds: %+v", got)
				}
			})
		}
	}
}

// TestChangesRejectOldRevision verifies that a change based on an outdated revision is rejected
// with a hint.
//
//suite:part hostile
func TestChangesRejectOldRevision(t *testing.T) {
	m := newMatrix(t, func(s brig.Store) brig.Store { return s })
	s := &server{t: t, url: m.url, key: m.keys["owner"]}
	for path, body := range map[string]string{
		"/v1/tenants/rival":       `{"budget":1%s}`,
		"/v1/routing?tenant=acme": `{"attempts":2%s}`,
		"/v1/providers/fake":      `{"terms":{"max":2}%s}`,
	} {
		if status, text := s.do("PUT", path, fmt.Sprintf(body, `,"rev":1`)); status != 200 {
			t.Errorf("%s, of what there is: %d %s", path, status, text)
		}
		if status, text := s.do("PUT", path, fmt.Sprintf(body, `,"rev":1`)); status != 409 || !containsAll(text, `"field":"rev"`, "read it again") {
			t.Errorf("%s, of what there was: %d %s", path, status, text)
		}
		if status, text := s.do("PUT", path, fmt.Sprintf(body, ``)); status != 200 {
			t.Errorf("%s, of whatever there is: %d %s", path, status, text)
		}
	}
}

func containsAll(s string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}
