package e2e

import (
	"context"
	"io"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/brig-run/brig"
	doorof "github.com/brig-run/brig/api/execman"
	"github.com/brig-run/brig/provider/execman"
	"github.com/brig-run/brig/provider/providertest"
)

// TestProgramsOnHost verifies that the suite's programs have the expected results in sandboxes on
// this host.
//
//suite:part core
func TestProgramsOnHost(t *testing.T) {
	e, ctx := newEngine(t)
	providertest.Programs(t, func(_ context.Context, p brig.Program) (*brig.Outcome, error) {
		return e.Run(ctx, p, brig.IO{})
	})
}

// TestProgramsAtExecman verifies that the suite's programs have the expected results on an
// executor manager.
//
//suite:part clients full
func TestProgramsAtExecman(t *testing.T) {
	p := openExecman(t)
	if err := p.Check(t.Context()); err != nil {
		t.Fatalf("Check: %v", err)
	}
	providertest.Programs(t, func(ctx context.Context, prog brig.Program) (*brig.Outcome, error) {
		return p.Run(ctx, "x", prog, brig.IO{})
	})
}

// openExecman opens a provider that uses the executor manager API of an engine
// on real gVisor.
func openExecman(t *testing.T) *execman.Provider {
	t.Helper()
	e, _ := newEngine(t)
	srv := httptest.NewServer(doorof.New(doorof.Options{
		Service: e, Actor: brig.Actor{Name: "execman", Tenant: "acme", Role: brig.Member}, Timeout: 30 * time.Second,
		Log: slog.New(slog.NewTextHandler(testLog{t}, nil)),
	}))
	t.Cleanup(srv.Close)
	p, err := execman.Open(brig.ProviderEnv{ID: execman.Name, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Called: func(brig.Call) {}},
		execman.Config{Endpoint: srv.URL, Timeout: 30, MaxRetries: 3, PoolSize: 4, AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}
