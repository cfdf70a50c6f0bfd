package e2e

import (
	"context"
	"crypto/sha256"
	"io"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/rest"
	"github.com/brig-run/brig/client"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/provider/fake"
	"github.com/brig-run/brig/servicetest"
	"github.com/brig-run/brig/store/mem"
	"github.com/brig-run/brig/store/sqlite"
)

// Keys of two tenants.
const (
	keyOfAcme  = "brig_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	keyOfRival = "brig_rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
)

// addKeys adds the two tenants and their keys to a store.
func addKeys(t *testing.T, store brig.Store) {
	t.Helper()
	for _, tenant := range []string{"acme", "rival"} {
		if err := store.PutTenant(t.Context(), &brig.Tenant{Name: tenant}); err != nil {
			t.Fatal(err)
		}
	}
	for key, tenant := range map[string]string{keyOfAcme: "acme", keyOfRival: "rival"} {
		err := store.PutKey(t.Context(), brig.Key{
			Hash:  sha256.Sum256([]byte(key)),
			ID:    "k" + tenant,
			Actor: brig.Actor{Name: "ann", Tenant: tenant, Role: brig.Operator, Key: "k" + tenant},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// throughAPI returns the harness with two clients of the server at url.
func throughAPI(t *testing.T, url string) servicetest.Harness {
	t.Helper()
	var h servicetest.Harness
	for key, to := range map[string]*brig.Service{keyOfAcme: &h.Service, keyOfRival: &h.Other} {
		c, err := client.New(client.Options{URL: url, Key: key})
		if err != nil {
			t.Fatal(err)
		}
		*to = c
	}
	return h
}

// hostImage is an image store with only the host image.
type hostImage struct{ brig.ImageStore }

func (hostImage) Resolve(_ context.Context, ref string) (*brig.Image, error) {
	if ref == brig.HostImage || ref == "sha256:aa" {
		return &brig.Image{Digest: "sha256:aa", Names: []string{brig.HostImage}}, nil
	}
	return nil, brig.Errorf(brig.NotFound, "no image %q", ref).WithHint("see `brig image ls`")
}

func (hostImage) List(context.Context) ([]*brig.Image, error) { return nil, nil }

func (hostImage) Import(context.Context, string, io.Reader, func(brig.Progress)) (*brig.Image, error) {
	return nil, brig.Errorf(brig.Unimplemented, "only the host's image is here")
}

// TestServiceThroughAPI runs the service suite through the client, the REST API and an engine
// with a fake provider.
//
//suite:part core
func TestServiceThroughAPI(t *testing.T) {
	store := mem.New()
	addKeys(t, store)
	quiet := slog.New(slog.DiscardHandler)
	e := engine.New(t.Context(), engine.Options{
		Store: store, Provider: &fake.Provider{}, Images: hostImage{}, LimitRange: brig.DefaultLimitRange(), Log: quiet, Keys: keyring(t), Seed: []byte("seed"),
		Workspaces: folderOf(t, t.TempDir()),
	})
	defer e.Close()
	srv := httptest.NewServer(rest.New(rest.Options{Service: e, Keys: e, LimitRange: brig.DefaultLimitRange(), Log: quiet}))
	defer srv.Close()
	servicetest.Run(t, throughAPI(t, srv.URL))
}

// TestServiceOnGVisor runs the service suite with an engine on real gVisor.
//
//suite:part core full
func TestServiceOnGVisor(t *testing.T) {
	e, _ := newEngine(t)
	tenant := func(name string) func(*testing.T) context.Context {
		return func(t *testing.T) context.Context {
			return brig.WithActor(t.Context(), brig.Actor{Name: "ann", Tenant: name, Role: brig.Operator, Key: "k" + name})
		}
	}
	servicetest.Run(t, servicetest.Harness{Service: e, Context: tenant("acme"), OtherContext: tenant("rival"), Real: true})
	checkNoHostTraces(t, dataDirOf(t, e))
}

// TestServiceOnServer runs the service suite with real components: the client, the
// network, `brig serve`, SQLite and gVisor.
//
//suite:part core
func TestServiceOnServer(t *testing.T) {
	dir := dataDir(t)
	store, err := sqlite.Open(t.Context(), filepath.Join(dir, "brig.db"))
	if err != nil {
		t.Fatal(err)
	}
	addKeys(t, store)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, dir)
	h := throughAPI(t, s.url)
	h.Real = true
	servicetest.Run(t, h)
	checkOnlyPool(t, s)
}
